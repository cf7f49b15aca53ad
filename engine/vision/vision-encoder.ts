/** Vision tower and projector: pixels to embeddings in the decoder's space. */
import type { DeviceName } from "../contract/config.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import type { RunOptions } from "../runtime/run-options.ts";
import type { Tensor } from "../runtime/tensor.ts";

export interface VisionEncoder extends Disposable {
  /**
   * Row-major [numEmbeddings, hiddenSize], in shared memory. Each run encodes one image: its embeddings are cached and
   * must not depend on other images. Throws EngineError `runtime_failed`, also if the graph returns more or fewer
   * embeddings than the prompt has places for.
   */
  encode(image: ImageFeature): Float32Array;
  /**
   * Returns the same numbers, computed on another thread; only for an encoder that computes on the CPU. Until the promise
   * settles, the encoder may run nothing else and may not be disposed of. Rejects as `encode` throws, also if `options`
   * end the run early.
   */
  encodeAsync(image: ImageFeature, options: RunOptions): Promise<Float32Array>;
  /**
   * Writes the same numbers into a tensor [1, numEmbeddings, hiddenSize] in the memory of that device; absent if the
   * encoder only writes into memory of its own. Throws as `encode` does.
   */
  encodeInto?(image: ImageFeature, target: Tensor<"float32">, device: DeviceName): void;
}
