/** Runs a built model's graphs directly, without an engine: KV slots bound in place, runs of any shape. */
import type { DeviceName } from "../../../engine/contract/config.ts";
import { StateCache } from "../../../engine/kv/state-cache.ts";
import type { BuiltModel } from "../../../engine/models/built-model.ts";
import type { IoBinding } from "../../../engine/runtime/io-binding.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import type { GoldenCase } from "../../support/checkpoints/goldens.ts";

export interface ImageRows {
  /** Row-major [positions.length, imageWidth]. */
  readonly embeddings: Float32Array;
  /** Rows of this run's tokens that the embeddings replace. */
  readonly positions: readonly number[];
}

export interface DirectRun {
  /** One list per slot from the first on; with several lists, each has one token. */
  readonly tokenIds: readonly (readonly number[])[];
  /** Number of tokens that each slot already has. */
  readonly numComputed: readonly number[];
  readonly images?: ImageRows;
  /** [3][tokens of all slots], if the decoder takes positions. If left out, positions are the tokens' indices. */
  readonly positions?: readonly (readonly number[])[];
  /** Rows of the flattened tokens whose logits are returned. */
  readonly logitRows: readonly number[];
}

export interface DirectDecoderOptions {
  readonly numSlots: number;
  readonly maxLength: number;
  readonly device?: DeviceName;
  readonly configEntries?: Readonly<Record<string, string>>;
}

export class DirectDecoder implements Disposable {
  readonly #model: BuiltModel;
  readonly #options: DirectDecoderOptions;
  readonly #session: Session;
  readonly #binding: IoBinding;
  // By number of slots: tensors over the same memory, if it is the host's.
  readonly #caches = new Map<number, ReadonlyMap<string, Tensor>>();
  readonly #states: StateCache | null;

  constructor(model: BuiltModel, options: DirectDecoderOptions) {
    this.#model = model;
    this.#options = options;
    this.#session = loadSession(model, model.decoder.path, options);
    this.#binding = this.#session.createBinding();
    this.#caches.set(options.numSlots, this.#allocateCaches());
    const { recurrent } = model.decoder;
    this.#states = recurrent === undefined ? null : new StateCache(this.#session, recurrent, options.numSlots);
  }

  /** Row-major [logitRows.length, vocabSize]. */
  run({ tokenIds, numComputed, images, positions: given, logitRows }: DirectRun): Float32Array {
    const numSlots = tokenIds.length;
    const { length } = tokenIds[0]!;
    this.#bindSlots(numSlots);
    const { imageWidth, vocabSize, acceptsImages, takesPositions } = this.#model.decoder;
    const int64 = (values: readonly number[], shape: readonly number[]): Tensor =>
      Tensor.fromTypedArray("int64", BigInt64Array.from(values, BigInt), shape);
    const lengths = numComputed.map((computed) => computed + length);

    const positions = images?.positions ?? [];
    const inputs: Record<string, Tensor> = {
      input_ids: int64(tokenIds.flat(), [numSlots, length]),
      seqlens_k: Tensor.fromTypedArray(
        "int32",
        Int32Array.from(lengths, (total) => total - 1),
        [numSlots],
      ),
      total_sequence_length: Tensor.fromTypedArray("int32", Int32Array.of(Math.max(...lengths)), []),
      logit_rows: int64(logitRows, [logitRows.length]),
    };
    if (acceptsImages) {
      const embeddings = images?.embeddings ?? new Float32Array(0);
      inputs.image_embeds = Tensor.fromTypedArray("float32", embeddings, [positions.length, imageWidth]);
      inputs.image_positions = int64(positions, [positions.length, 1]);
    }
    if (takesPositions) {
      const places = tokenIds.flatMap((ids, slot) => ids.map((_, index) => numComputed[slot]! + index));
      inputs.positions = int64((given ?? [places, places, places]).flat(), [3, places.length]);
    }
    if (this.#states !== null) {
      for (const [slot, computed] of numComputed.entries()) if (computed === 0) this.#states.clear(slot);
      inputs.updates_state = Tensor.fromTypedArray("bool", new Uint8Array(numSlots).fill(1), [numSlots]);
      for (const [name, tensor] of this.#states.view(0, numSlots).tensors) this.#bindInPlace(name, tensor);
    }
    const logits = new Float32Array(logitRows.length * vocabSize);
    using output = Tensor.fromTypedArray("float32", logits, [logitRows.length, vocabSize]);
    for (const [name, tensor] of Object.entries(inputs)) this.#binding.bindInput(name, tensor);
    this.#binding.bindOutput("logits", output);
    this.#binding.run();
    for (const tensor of Object.values(inputs)) tensor[Symbol.dispose]();
    return logits;
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
  }

  #allocateCaches(): Map<string, Tensor> {
    const { numLayers, kvElementType } = this.#model.decoder;
    const caches = new Map<string, Tensor>();
    for (let layer = 0; layer < numLayers; layer++) {
      for (const part of ["key", "value"]) {
        const tensor = this.#session.allocateTensor(kvElementType, this.#cacheShape(this.#options.numSlots));
        caches.set(`${layer}.${part}`, tensor);
      }
    }
    return caches;
  }

  /** On a device, all slots always run together, because its tensors have no views. */
  #bindSlots(numSlots: number): void {
    const all = this.#caches.get(this.#options.numSlots)!;
    const caches =
      this.#caches.get(numSlots) ??
      new Map(
        [...all].map(([name, tensor]) => {
          const shape = this.#cacheShape(numSlots);
          const data = tensor.data.subarray(
            0,
            shape.reduce((product, size) => product * size, 1),
          );
          return [name, Tensor.fromTypedArray(tensor.elementType, data, shape)];
        }),
      );
    this.#caches.set(numSlots, caches);
    for (const [name, tensor] of caches) this.#bindInPlace(name, tensor);
  }

  #bindInPlace(name: string, tensor: Tensor): void {
    this.#binding.bindInput(`past.${name}`, tensor);
    this.#binding.bindOutput(`present.${name}`, tensor);
  }

  #cacheShape(numSlots: number): number[] {
    const { numKvHeads, headDim } = this.#model.decoder;
    return [numSlots, numKvHeads, this.#options.maxLength, headDim];
  }
}

/**
 * Row-major [numTiles, numImageTokens, hiddenSize], for an encoder with one input: pictures of one size in a batch, or
 * one item of many tiles.
 */
export function encodeImages(model: BuiltModel, values: Float32Array, device: DeviceName = "cpu"): Float32Array {
  const encoder = model.visionEncoder;
  if (encoder === null) throw new Error("the model does not accept images");
  const { hiddenSize } = model.decoder;
  const { name, shape } = encoder.inputs[0]!;
  const tileShape = shape.filter((size) => typeof size === "number");
  const numTiles = values.length / tileShape.reduce((product, size) => product * size, 1);
  const isOneItem = tileShape.length < shape.length;
  const batch = isOneItem ? [1, numTiles] : [numTiles];
  const rows = isOneItem ? [1, numTiles * encoder.numImageTokens] : [numTiles, encoder.numImageTokens];
  using session = loadSession(model, encoder.path, { numSlots: 0, maxLength: 0, device });
  using binding = session.createBinding();
  using input = Tensor.fromTypedArray("float32", values, [...batch, ...tileShape]);
  const features = new Float32Array(numTiles * encoder.numImageTokens * hiddenSize);
  using output = Tensor.fromTypedArray("float32", features, [...rows, hiddenSize]);
  binding.bindInput(name, input);
  binding.bindOutput("image_features", output);
  binding.run();
  return features;
}

/** The features of a golden case's pictures, in the model's own form; null without pictures. */
export function encodeGolden(model: BuiltModel, { pixelValues, grids }: GoldenCase): Float32Array | null {
  if (pixelValues === null) return null;
  return grids === undefined ? encodeImages(model, pixelValues) : encodeGrids(model, pixelValues, grids);
}

/** Like `encodeImages`, for pictures with grids of patches, one after the other. */
function encodeGrids(
  model: BuiltModel,
  values: Float32Array,
  grids: readonly (readonly [number, number, number])[],
): Float32Array {
  const encoder = model.visionEncoder;
  if (encoder === null) throw new Error("the model does not accept images");
  const { hiddenSize } = model.decoder;
  const [pixels, grid] = encoder.inputs;
  const numFeatures = Number(pixels!.shape[1]);
  using session = loadSession(model, encoder.path, { numSlots: 0, maxLength: 0 });
  using binding = session.createBinding();
  const features: number[] = [];
  let firstPatch = 0;
  for (const [time, rows, columns] of grids) {
    const numPatches = time * rows * columns;
    const patches = values.subarray(firstPatch * numFeatures, (firstPatch + numPatches) * numFeatures);
    const merged = new Float32Array((numPatches / 4) * hiddenSize);
    using input = Tensor.fromTypedArray("float32", patches, [1, numPatches, numFeatures]);
    using gridInput = Tensor.fromTypedArray("int64", BigInt64Array.from([time, rows, columns], BigInt), [1, 3]);
    using output = Tensor.fromTypedArray("float32", merged, [1, numPatches / 4, hiddenSize]);
    binding.bindInput(pixels!.name, input);
    binding.bindInput(grid!.name, gridInput);
    binding.bindOutput("image_features", output);
    binding.run();
    features.push(...merged);
    firstPatch += numPatches;
  }
  return Float32Array.from(features);
}

function loadSession(model: BuiltModel, path: string, { device, configEntries }: DirectDecoderOptions): Session {
  return Session.load(path, {
    device: device ?? "cpu",
    deviceId: 0,
    numThreads: 2,
    externalDataFolder: model.externalDataFolder,
    ...(configEntries === undefined ? {} : { configEntries }),
  });
}
