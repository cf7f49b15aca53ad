/** Vision tower and projector: pixels to embeddings in the decoder's space. */
import type { ImageFeature } from "../core/engine-request.ts";

export interface VisionEncoder extends Disposable {
  /**
   * Row-major [numEmbeddings, hiddenSize], in shared memory. Each run encodes one image: its embeddings are cached and
   * must not depend on other images. Throws EngineError `runtime_failed`, also if the graph returns more or fewer
   * embeddings than the prompt has places for.
   */
  encode(image: ImageFeature): Float32Array;
}
