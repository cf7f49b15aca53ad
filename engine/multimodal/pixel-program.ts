/**
 * A model's own way from a decoded picture to tensors, for those whose image processor is none of the usual ones. It is
 * a module of its own that exports `toTensors`, as it runs on the threads that decode pictures.
 */
import type { CanonicalValue } from "./hasher.ts";
import type { ItemTensor } from "./processed-item.ts";
import type { ImageSize } from "./processing-info.ts";

export interface RgbImage extends ImageSize {
  /** Row-major [height, width, 3], sRGB. */
  readonly data: Uint8Array;
}

export interface PixelTools {
  /** To the very bytes of Pillow's `Image.resize`. */
  readonly resample: (
    image: RgbImage,
    to: ImageSize & { readonly filter: "nearest" | "lanczos" | "bilinear" | "bicubic" | "box" | "hamming" },
  ) => RgbImage;
  /**
   * By channel, what each of the 256 bytes becomes when it is rescaled and normalised; null leaves a step out. Mean and
   * deviation are by channel, in the unit of the rescaled values.
   */
  readonly valuesOfBytes: (steps: {
    readonly rescaleFactor: number | null;
    readonly normalize: { readonly mean: readonly number[]; readonly std: readonly number[] } | null;
  }) => readonly Float32Array[];
}

/**
 * Tensors by the vision encoder's input names, without the dimension of the batch. `options` are as
 * preprocessor_config.json has them, with what the deployment and the request changed: parsed here. Throws EngineError
 * `invalid_checkpoint` or `unsupported_model` for options it cannot follow, `image_too_large`.
 */
export type PixelProgram = (
  image: RgbImage,
  options: Readonly<Record<string, CanonicalValue>>,
  tools: PixelTools,
) => ReadonlyMap<string, ItemTensor>;
