/** Copies tokens between slots on a device that has no views: a graph of its own, without weights. */
import type { DeviceName } from "../contract/config.ts";
import { GraphBuilder } from "../graph/graph-builder.ts";
import { scatterAlongFirstAxis, sliceBetween } from "../graph/selection-ops.ts";
import { expand } from "../graph/standard-ops.ts";
import type { KvHeads } from "../models/built-model.ts";
import { layersOf } from "../models/decoder-shape.ts";
import type { ProviderOptions } from "../runtime/execution-provider.ts";
import { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import { slotShape } from "./kv-tensors.ts";
import type { KvShape } from "./memory-plan.ts";

/** A slot among those of the tensors of all layers. */
export interface SlotPlace {
  /** Keys, then values, by layer: [numSlots, numKvHeads, maxLen, headDim]. */
  readonly tensors: readonly Tensor[];
  /** Index along the first axis. */
  readonly row: number;
}

/** Owns its session. */
export class SlotMover implements Disposable {
  readonly #session: Session;
  readonly #layers: readonly KvHeads[];

  /** @throws EngineError `runtime_failed` if the device lacks a kernel. */
  constructor(decoder: KvShape, device: DeviceName, options: ProviderOptions) {
    this.#layers = differentLayers(layersOf(decoder));
    this.#session = Session.fromBytes(buildMoveGraph(decoder), { ...options, device, numThreads: 1 });
  }

  /** Overwrites the first `numTokens` tokens of `to`, whose tensors may be those of `from`. Later runs on the device see them. */
  move(from: SlotPlace, to: SlotPlace, numTokens: number): void {
    if (numTokens === 0) return;
    using small = new DisposableStack();
    const int64 = (values: readonly number[]): Tensor =>
      small.use(Tensor.fromTypedArray("int64", BigInt64Array.from(values, BigInt), [values.length]));
    using binding = this.#session.createBinding();
    for (const layer of this.#layers) {
      const shape = slotShape(layer, 1, numTokens);
      const name = suffixOf(layer);
      binding.bindInput(`starts.${name}`, int64(shape.map((_, axis) => (axis === 0 ? from.row : 0))));
      binding.bindInput(`ends.${name}`, int64(shape.map((size, axis) => (axis === 0 ? from.row + 1 : size))));
      binding.bindInput(`shape.${name}`, int64(shape));
    }
    binding.bindInput("row", small.use(Tensor.fromTypedArray("int32", Int32Array.of(to.row), [1, 1, 1, 1])));
    for (const [index, source] of from.tensors.entries()) {
      binding.bindInput(`source.${index}`, source);
      binding.bindInput(`target.${index}`, to.tensors[index]!);
      binding.bindOutput(`moved.${index}`, to.tensors[index]!);
    }
    binding.run();
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }
}

/**
 * Cuts a part out of each tensor and writes it to another place. `ScatterElements` is given a row for every element,
 * which all tensors of the same shape share: its kernel writes them in parallel, while `ScatterND` would write a slot in
 * one thread.
 */
function buildMoveGraph(decoder: KvShape): Uint8Array {
  const { kvElementType } = decoder;
  const layers = layersOf(decoder);
  const graph = new GraphBuilder("move_slots");
  const rank = 4;
  const row = graph.input("row", "int32", [1, 1, 1, 1]);
  const parts = new Map(
    differentLayers(layers).map((layer) => {
      const name = suffixOf(layer);
      const moved = [1, layer.numKvHeads, "num_tokens", layer.headDim];
      const starts = graph.input(`starts.${name}`, "int64", [rank]);
      const ends = graph.input(`ends.${name}`, "int64", [rank]);
      const indices = expand(graph, `rows.${name}`, row, graph.input(`shape.${name}`, "int64", [rank]), moved);
      return [name, { moved, starts, ends, indices }];
    }),
  );
  for (const [index, layer] of [...layers, ...layers].entries()) {
    const { numKvHeads, headDim } = layer;
    const { moved, starts, ends, indices } = parts.get(suffixOf(layer))!;
    const tensor = (name: string, numSlots: string, maxLen: string) =>
      graph.input(`${name}.${index}`, kvElementType, [numSlots, numKvHeads, maxLen, headDim]);
    const source = tensor("source", "num_sources", "source_length");
    const data = tensor("target", "num_targets", "target_length");
    const updates = sliceBetween(graph, `part.${index}`, source, { starts, ends, shape: moved });
    graph.output(scatterAlongFirstAxis(graph, `moved.${index}`, { data, indices, updates }));
  }
  return graph.encode();
}

/** Suffix for the heads of an input for one kind of layers. */
function suffixOf({ numKvHeads, headDim }: KvHeads): string {
  return `${numKvHeads}.${headDim}`;
}

function differentLayers(layers: readonly KvHeads[]): KvHeads[] {
  return [...new Map(layers.map((layer) => [suffixOf(layer), layer])).values()];
}
