/** The vision encoder of a ready-made export. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { ImageFeature } from "../core/engine-request.ts";
import type { ExportedVisionInput, PatchOrder, VisionEncoderExport } from "../models/built-model.ts";
import { pictureOfPatches } from "../models/patches/patch-values.ts";
import { numEmbeddingsOf } from "../multimodal/placeholder.ts";
import type { ItemTensor } from "../multimodal/processed-item.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import type { RunOptions } from "../runtime/run-options.ts";
import { Session } from "../runtime/session.ts";
import type { SessionOptions } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { VisionEncoder } from "./vision-encoder.ts";

/** Owns its session. */
export class ExportedVisionEncoder implements VisionEncoder {
  readonly #graph: VisionEncoderExport;
  readonly #hiddenSize: number;
  readonly #session: Session;
  readonly #binding: IoBinding;

  /** Throws EngineError `runtime_failed` if the graph does not load. */
  constructor(graph: VisionEncoderExport, hiddenSize: number, sessionOptions: SessionOptions) {
    this.#graph = graph;
    this.#hiddenSize = hiddenSize;
    this.#session = Session.load(graph.path, sessionOptions);
    this.#binding = this.#session.createBinding();
    // The number of dimensions of the features differs between exports.
    this.#binding.bindOutputToDevice("image_features", "host");
  }

  encode(image: ImageFeature): Float32Array {
    using _ = this.#bindInputs(image);
    this.#binding.run();
    return this.#readFeatures(image);
  }

  async encodeAsync(image: ImageFeature, options: RunOptions): Promise<Float32Array> {
    using _ = this.#bindInputs(image);
    await this.#binding.runAsync(options);
    return this.#readFeatures(image);
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }

  /** Binds the inputs of one run until they are disposed of. */
  #bindInputs(image: ImageFeature): Disposable {
    using bound = new DisposableStack();
    bound.defer(() => this.#binding.clearInputs());
    for (const input of this.#graph.exportedInputs) {
      this.#binding.bindInput(input.name, bound.use(createInput(input, image)));
    }
    return bound.move();
  }

  #readFeatures(image: ImageFeature): Float32Array {
    const numEmbeddings = numEmbeddingsOf(image);
    const numValues = numEmbeddings * this.#hiddenSize;
    using output = this.#binding.output("image_features");
    const { data, shape } = output;
    if (data.length !== numValues) {
      throw new EngineError(
        "runtime_failed",
        `The vision encoder returned features of shape [${shape.join(", ")}]; the prompt has places for ${numEmbeddings} of width ${this.#hiddenSize}.`,
      );
    }
    const embeddings = new Float32Array(new SharedArrayBuffer(numValues * Float32Array.BYTES_PER_ELEMENT));
    embeddings.set(data as Float32Array | Float16Array);
    return embeddings;
  }
}

function createInput(input: ExportedVisionInput, image: ImageFeature): Tensor {
  const { name, elementType, source, hasBatch, patchOrder } = input;
  if (source === null) {
    const { shape } = tensorOf(image, "pixel_values");
    // All dimensions except the channels.
    const maskShape = [1, ...shape.slice(0, -3), ...shape.slice(-2)];
    const numPixels = maskShape.reduce((product, size) => product * size, 1);
    return elementType === "int64"
      ? Tensor.fromTypedArray("int64", new BigInt64Array(numPixels).fill(1n), maskShape)
      : Tensor.fromTypedArray("bool", new Uint8Array(numPixels).fill(1), maskShape);
  }
  const {
    data,
    shape,
    elementType: givenType,
  } = patchOrder === null ? tensorOf(image, source) : pictureOf(image, patchOrder);
  const givenShape = hasBatch ? [1, ...shape] : shape;
  if (elementType === "float16") {
    return Tensor.fromTypedArray("float16", Float16Array.from(data as Float32Array), givenShape);
  }
  invariant(givenType === elementType, `${name} expects ${elementType} and receives ${givenType}`);
  return Tensor.fromTypedArray(givenType, data, givenShape);
}

/** The patches of `pixel_values` as a picture, [3, height, width]. */
function pictureOf(image: ImageFeature, patchOrder: PatchOrder): ItemTensor<"float32"> {
  const pixels = tensorOf(image, "pixel_values") as ItemTensor<"float32">;
  const [, rows, columns] = Array.from((tensorOf(image, "image_grid_thw") as ItemTensor<"int64">).data, Number);
  const data = pictureOfPatches(pixels.data, [rows!, columns!], patchOrder);
  const [height, width] = [rows! * patchOrder.patchSize, columns! * patchOrder.patchSize];
  return { elementType: "float32", shape: [data.length / (height * width), height, width], data };
}

function tensorOf({ tensors }: ImageFeature, name: string): ItemTensor {
  const tensor = tensors.get(name);
  invariant(tensor !== undefined, `an image has no ${name}`);
  return tensor;
}
