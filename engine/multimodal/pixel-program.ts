/**
 * A model's own conversion from a decoded picture to tensors, for unusual image processors. It is a separate module
 * that exports `toTensors`, because it runs on the threads that decode pictures.
 */
import type { CanonicalValue } from "./hasher.ts";
import type { ItemTensor } from "./processed-item.ts";
import type { ImageSize } from "./processing-info.ts";

export interface RgbImage extends ImageSize {
  /** Row-major [height, width, 3], sRGB. */
  readonly data: Uint8Array;
  /** The frames after this one, of the same size, if several frames of a video are one item. */
  readonly further?: readonly RgbImage[];
}

export interface PixelTools {
  /** Bit-identical to Pillow's `Image.resize`. */
  readonly resample: (
    image: RgbImage,
    to: ImageSize & { readonly filter: "nearest" | "lanczos" | "bilinear" | "bicubic" | "box" | "hamming" },
  ) => RgbImage;
  /**
   * The rescaled and normalised value of each of the 256 bytes, by channel; null skips a step. Mean and deviation are
   * by channel, in units of the rescaled values.
   */
  readonly valuesOfBytes: (steps: {
    readonly rescaleFactor: number | null;
    readonly normalize: { readonly mean: readonly number[]; readonly std: readonly number[] } | null;
  }) => readonly Float32Array[];
}

/**
 * Returns tensors by the vision encoder's input names, without the batch dimension. `options` has the form of
 * preprocessor_config.json with the deployment's and the request's changes, and is parsed here. Throws EngineError
 * `invalid_checkpoint` or `unsupported_model` for unsupported options, `image_too_large`.
 */
export type PixelProgram = (
  image: RgbImage,
  options: Readonly<Record<string, CanonicalValue>>,
  tools: PixelTools,
) => ReadonlyMap<string, ItemTensor>;
