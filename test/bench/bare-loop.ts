/** The minimum cost of a decode step: the engine's own graph, bound once, run in a bare loop. */
import { performance } from "node:perf_hooks";

import { decoderSessionOptions } from "../../engine/core/session-options.ts";
import type { BuiltModel } from "../../engine/models/built-model.ts";
import { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import { openCheckpoint } from "../../engine/weights/checkpoint.ts";
import { buildModel } from "../support/engine/shipped-models.ts";
import { benchConfig } from "./engine-throughput.ts";
import type { EngineBenchOptions } from "./engine-throughput.ts";

/** As built by the engine; weights and graph come from the cache if the engine has already made them. */
export async function buildBenchModel(options: EngineBenchOptions): Promise<BuiltModel> {
  const { dtype, device, maxModelLen, cacheFolder } = benchConfig(options);
  const checkpoint = await openCheckpoint(options.model, { cacheFolder });
  return buildModel(checkpoint, { dtype, device, maxModelLen, cacheFolder, numThreads: options.numThreads });
}

export class BareLoop implements Disposable {
  readonly #session: Session;
  readonly #model: BuiltModel;
  readonly #maxLen: number;

  private constructor(model: BuiltModel, options: EngineBenchOptions) {
    const config = benchConfig(options);
    this.#model = model;
    this.#maxLen = config.maxModelLen! + 1;
    this.#session = Session.load(model.decoder.path, decoderSessionOptions(config, model));
  }

  static async create(options: EngineBenchOptions): Promise<BareLoop> {
    return new BareLoop(await buildBenchModel(options), options);
  }

  /** Tokens per second of `concurrency` sequences of `contextTokens` tokens, `decodeTokens` steps long. */
  decodeTokensPerSecond(concurrency: number, contextTokens: number, decodeTokens: number): number {
    const { numLayers, numKvHeads, headDim, vocabSize } = this.#model.decoder;
    using binding = this.#session.createBinding();
    using resources = new DisposableStack();
    const bindInput = (name: string, tensor: Tensor): Tensor => {
      binding.bindInput(name, resources.use(tensor));
      return tensor;
    };
    const kvShape = [concurrency, numKvHeads, this.#maxLen, headDim];
    for (let layer = 0; layer < numLayers; layer++) {
      for (const part of ["key", "value"]) {
        const kv = this.#session.allocateTensor("float32", kvShape);
        bindInput(`past.${layer}.${part}`, kv);
        fillPositions(kv.data, concurrency * numKvHeads, headDim, contextTokens + decodeTokens + 1);
        binding.bindOutput(`present.${layer}.${part}`, kv);
      }
    }
    const lengths = new Int32Array(concurrency);
    const totalLength = new Int32Array(1);
    const rows = BigInt64Array.from({ length: concurrency }, (_, row) => BigInt(row));
    const tokenIds = new BigInt64Array(concurrency).fill(300n);
    bindInput("input_ids", Tensor.fromTypedArray("int64", tokenIds, [concurrency, 1]));
    bindInput("seqlens_k", Tensor.fromTypedArray("int32", lengths, [concurrency]));
    bindInput("total_sequence_length", Tensor.fromTypedArray("int32", totalLength, []));
    bindInput("logit_rows", Tensor.fromTypedArray("int64", rows, [concurrency]));
    const logits = new Float32Array(concurrency * vocabSize);
    binding.bindOutput("logits", resources.use(Tensor.fromTypedArray("float32", logits, [concurrency, vocabSize])));
    const step = (length: number): void => {
      lengths.fill(length);
      totalLength[0] = length + 1;
      binding.run();
    };
    step(contextTokens); // Warms the session up for this shape.
    const startMs = performance.now();
    for (let index = 1; index <= decodeTokens; index++) step(contextTokens + index);
    return (concurrency * decodeTokens * 1000) / (performance.now() - startMs);
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }
}

/**
 * Writes the positions to which the loop attends: memory that was never written is one page of zeros, which costs no
 * time to read.
 */
function fillPositions(kv: Float32Array, numRows: number, headDim: number, numPositions: number): void {
  const rowLength = kv.length / numRows;
  for (let row = 0; row < numRows; row++) {
    kv.fill(0.01, row * rowLength, row * rowLength + numPositions * headDim);
  }
}
