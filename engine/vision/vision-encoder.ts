/** The vision tower and projector: pixels to embeddings in the decoder's space. */
import type { ImageFeature } from "../core/engine-request.ts";

export interface VisionEncoder extends Disposable {
  /**
   * Row-major [numEmbeddings, hiddenSize], in memory that threads share. One image a run: its embeddings are cached and
   * must not depend on what it was encoded with. Throws EngineError `runtime_failed`, also where the graph makes more
   * or fewer than the prompt has places for.
   */
  encode(image: ImageFeature): Float32Array;
}
