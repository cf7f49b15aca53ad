/** Encodes images beside the steps of the engine thread, on a thread of libuv's pool: one image at a time. */
import { invariant } from "../contract/errors.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import { RunOptions } from "../runtime/run-options.ts";
import type { StepProgress } from "../thread/step-progress.ts";
import type { VisionEncoder } from "./vision-encoder.ts";

export type EncodedImage =
  /** Row-major [numEmbeddings, hiddenSize], in shared memory. */
  | { readonly kind: "encoded"; readonly image: ImageFeature; readonly embeddings: Float32Array }
  | { readonly kind: "failed"; readonly image: ImageFeature; readonly error: unknown };

interface EncoderRun {
  readonly image: ImageFeature;
  readonly options: RunOptions;
  /** Never rejects. */
  readonly ended: Promise<void>;
  isCancelled: boolean;
}

/**
 * Mutable; owns the encoder. The engine thread makes all calls. A run that has ended is noticed when the thread returns
 * to its event loop, so never within a step.
 */
export class BackgroundEncoder implements Disposable {
  readonly #encoder: VisionEncoder;
  readonly #progress: StepProgress;
  #run: EncoderRun | null = null;
  #result: EncodedImage | null = null;
  #isDisposed = false;

  constructor(encoder: VisionEncoder, progress: StepProgress) {
    this.#encoder = encoder;
    this.#progress = progress;
  }

  /** The image of the run that is under way; null if there is none. */
  get current(): ImageFeature | null {
    return this.#run?.image ?? null;
  }

  /** Resolves when the run that is under way has ended; at once if there is none. */
  get ended(): Promise<void> {
    return this.#run?.ended ?? Promise.resolve();
  }

  /** Does nothing while a run is under way. */
  tryStart(image: ImageFeature): void {
    if (this.#run !== null) return;
    invariant(this.#result === null, "an image is encoded before the result of the last one was taken");
    const options = new RunOptions();
    this.#progress.beginEncoding();
    const ended = this.#encoder.encodeAsync(image, options).then(
      (embeddings) => this.#end({ kind: "encoded", image, embeddings }),
      (error: unknown) => this.#end({ kind: "failed", image, error }),
    );
    this.#run = { image, options, ended, isCancelled: false };
  }

  /** The result of the last run, once; null if it was cancelled. */
  takeResult(): EncodedImage | null {
    const result = this.#result;
    this.#result = null;
    return result;
  }

  /** Ends the run that is under way before its next node. It has no result then. */
  cancel(): void {
    if (this.#run === null) return;
    this.#run.isCancelled = true;
    this.#run.options.terminate();
  }

  /** The encoder is freed when its run has ended. The event loop of the thread waits for that. */
  [Symbol.dispose](): void {
    if (this.#isDisposed) return;
    this.#isDisposed = true;
    if (this.#run === null) this.#encoder[Symbol.dispose]();
    else this.cancel();
  }

  #end(result: EncodedImage): void {
    const run = this.#run;
    invariant(run !== null, "a run of the vision encoder ends twice");
    this.#run = null;
    run.options[Symbol.dispose]();
    this.#progress.endEncoding();
    if (!run.isCancelled) this.#result = result;
    if (this.#isDisposed) this.#encoder[Symbol.dispose]();
  }
}
