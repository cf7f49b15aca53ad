/** A paged decoder's session bound to inputs and outputs of one shape. The binding is kept for later runs of the shape. */
import type { KvView } from "../kv/kv-cache.ts";
import { bindKv } from "../kv/kv-tensors.ts";
import { bindStates } from "../kv/state-cache.ts";
import type { StateView } from "../kv/state-cache.ts";
import type { DecoderGraph } from "../models/built-model.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { RunOptions } from "../runtime/run-options.ts";
import type { Session } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { ViewedPool } from "../vision/feature-pool.ts";
import { packedLayouts } from "./packed-inputs.ts";
import type { PackedLayouts, PackedShape } from "./packed-inputs.ts";
import type { RunLogits, RunRows } from "./run-logits.ts";
import type { StepMemory, StepRegion } from "./step-memory.ts";

/** Bounds by which CUDA's attention kernels are selected without waiting for the device. */
export interface AttentionBounds {
  /** No sequence has more new tokens. */
  readonly maxNewTokens: number;
  /** No sequence is longer after the run. */
  readonly maxLength: number;
  /** The longest sequence is at least this long. */
  readonly minLongestLength: number;
}

export interface PackedRunParts {
  readonly session: Session;
  readonly graph: DecoderGraph;
  readonly kvView: KvView;
  /** All rows; null without recurrent layers. */
  readonly stateView: StateView | null;
  readonly inputMemory: StepMemory;
  readonly logits: RunLogits;
  /** Image features; null for a text model. */
  readonly featurePool: ViewedPool | null;
  /** Options of a run that neither captures nor replays a graph; null if the session captures none. */
  readonly eagerOptions: RunOptions | null;
}

/** Mutable; shares the KV memory with other runs. */
export class PackedRun implements Disposable {
  readonly shape: PackedShape;
  readonly inputs: StepRegion<PackedLayouts>;
  readonly rows: RunRows;
  readonly #parts: PackedRunParts;
  readonly #binding: IoBinding;
  readonly #bounds = new Int32Array(3);
  readonly #owned = new DisposableStack();

  /** @param firstRow Index in the step of the run's first row of logits. */
  constructor(parts: PackedRunParts, shape: PackedShape, firstRow: number) {
    const { session, graph, kvView, stateView, inputMemory, logits, featurePool } = parts;
    this.shape = shape;
    this.#parts = parts;
    this.inputs = this.#owned.use(inputMemory.region(packedLayouts(shape)));
    this.rows = this.#owned.use(logits.rows(firstRow, shape.numRows));
    this.#binding = this.#owned.use(session.createBinding());
    bindKv(this.#binding, graph, kvView);
    if (stateView !== null) bindStates(this.#binding, stateView);
    for (const [name, tensor] of Object.entries(this.inputs.tensors)) {
      if (session.inputNames.includes(name)) this.#binding.bindInput(name, tensor);
    }
    for (const [name, tensor] of Object.entries(this.rows.tensors)) this.#binding.bindOutput(name, tensor);
    if (featurePool !== null) this.#binding.bindInput("image_pool", featurePool.tensor);
    if (session.device !== "cuda") return;
    // In the host's memory, where the kernels read it.
    const bounds = this.#owned.use(Tensor.fromTypedArray("int32", this.#bounds, [3]));
    this.#binding.bindInput("attention_metadata", bounds);
  }

  setBounds({ maxNewTokens, maxLength, minLongestLength }: AttentionBounds): void {
    this.#bounds.set([maxNewTokens, maxLength, minLongestLength]);
  }

  /**
   * Blocks until KV and logits are written.
   *
   * @param graphOptions Name the CUDA graph that the run captures or replays; null runs eagerly. A replay reads none of
   *   the bindings, only the memory that was bound when it was captured.
   * @throws EngineError `runtime_failed`.
   */
  run(graphOptions: Pick<RunOptions, "handle"> | null): void {
    this.inputs.upload();
    this.#binding.run(graphOptions ?? this.#parts.eagerOptions);
    this.#parts.logits.keep(this.rows);
  }

  [Symbol.dispose](): void {
    this.#owned.dispose();
  }
}
