/** Vision tower and projector as a graph that we built. */
import type { DeviceName } from "../contract/config.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import type { VisionEncoderGraph } from "../models/built-model.ts";
import { numEmbeddingsOf } from "../multimodal/placeholder.ts";
import type { TensorElementType } from "../runtime/element-type.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { RunOptions } from "../runtime/run-options.ts";
import { Session } from "../runtime/session.ts";
import type { SessionOptions } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { VisionEncoder } from "./vision-encoder.ts";

/** Owns its session. */
export class BuiltVisionEncoder implements VisionEncoder {
  readonly #imageWidth: number;
  readonly #session: Session;
  readonly #binding: IoBinding;

  /** Throws EngineError `runtime_failed` if the graph does not load. */
  constructor(graph: VisionEncoderGraph, imageWidth: number, sessionOptions: SessionOptions) {
    this.#imageWidth = imageWidth;
    this.#session = Session.load(graph.path, sessionOptions);
    this.#binding = this.#session.createBinding();
  }

  encode(image: ImageFeature): Float32Array {
    using features = this.#createFeatures(image);
    this.#run(image, features);
    return features.data;
  }

  async encodeAsync(image: ImageFeature, options: RunOptions): Promise<Float32Array> {
    using features = this.#createFeatures(image);
    using _ = this.#bind(image, features);
    await this.#binding.runAsync(options);
    return features.data;
  }

  encodeInto(image: ImageFeature, target: Tensor<"float32">, device: DeviceName): void {
    if (device === this.#session.device) this.#run(image, target);
    else target.copyFrom(this.encode(image));
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }

  /** In shared memory. The caller disposes of it. */
  #createFeatures(image: ImageFeature): Tensor<"float32"> {
    const numEmbeddings = numEmbeddingsOf(image);
    const numBytes = numEmbeddings * this.#imageWidth * Float32Array.BYTES_PER_ELEMENT;
    const embeddings = new Float32Array(new SharedArrayBuffer(numBytes));
    return Tensor.fromTypedArray("float32", embeddings, [1, numEmbeddings, this.#imageWidth]);
  }

  #run(image: ImageFeature, features: Tensor): void {
    using _ = this.#bind(image, features);
    this.#binding.run();
  }

  /** Binds the tensors of one run until it is disposed of. */
  #bind(image: ImageFeature, features: Tensor): Disposable {
    using bound = new DisposableStack();
    bound.defer(() => {
      this.#binding.clearInputs();
      this.#binding.clearOutputs();
    });
    for (const [name, { elementType, data, shape }] of image.tensors) {
      const input = Tensor.fromTypedArray<TensorElementType>(elementType, data, [1, ...shape]);
      this.#binding.bindInput(name, bound.use(input));
    }
    this.#binding.bindOutput("image_features", features);
    return bound.move();
  }
}
