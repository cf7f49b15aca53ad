/** The vision tower and projector: pixels to embeddings in the decoder's space. */
import type { ImageFeature } from "../engine-request.ts";
import { invariant } from "../errors.ts";
import type { VisionEncoderGraph } from "../models/built-model.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import { Session } from "../runtime/session.ts";
import type { SessionOptions } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";

/** Owns its session. */
export class VisionEncoder implements Disposable {
  readonly #graph: VisionEncoderGraph;
  readonly #hiddenSize: number;
  readonly #session: Session;
  readonly #binding: IoBinding;

  /** Throws EngineError `runtime_failed` for a graph that does not load. */
  constructor(graph: VisionEncoderGraph, hiddenSize: number, sessionOptions: SessionOptions) {
    this.#graph = graph;
    this.#hiddenSize = hiddenSize;
    this.#session = Session.load(graph.path, sessionOptions);
    this.#binding = this.#session.createBinding();
  }

  /**
   * Row-major [numImageTokens, hiddenSize]. One image a run: its embeddings are cached and must not depend on what it
   * was encoded with. Throws EngineError `runtime_failed`.
   */
  encode({ pixelValues, shape }: ImageFeature): Float32Array {
    const { imageSize, numImageTokens } = this.#graph;
    invariant(
      shape[0] === 3 && shape[1] === imageSize && shape[2] === imageSize,
      `pixels of ${shape.join(" x ")}, the encoder takes 3 x ${imageSize} x ${imageSize}`,
    );
    const embeddings = new Float32Array(numImageTokens * this.#hiddenSize);
    using pixels = Tensor.fromTypedArray("float32", pixelValues, [1, ...shape]);
    using features = Tensor.fromTypedArray("float32", embeddings, [1, numImageTokens, this.#hiddenSize]);
    this.#binding.bindInput("pixel_values", pixels);
    this.#binding.bindOutput("image_features", features);
    this.#binding.run();
    this.#binding.clearInputs();
    this.#binding.clearOutputs();
    return embeddings;
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }
}
