/** Turns an RGB picture into the values of a vision encoder: pad, resize, crop, rescale, normalise. */
import { EngineError } from "../contract/errors.ts";
import { padToSquare } from "../multimodal/pad-picture.ts";
import type { DecodedImage } from "./decode-image.ts";
import type { PixelSize, PreprocessorPlan, ResizeRule } from "./preprocessor-config.ts";
import { resample } from "./resample.ts";

export interface PixelValues {
  /** Row-major [3, height, width]: red, green and blue planes. */
  readonly pixelValues: Float32Array<ArrayBuffer>;
  readonly shape: readonly [channels: number, height: number, width: number];
  /** Size of the original picture. */
  readonly imageSize: PixelSize;
}

/** Maximum number of pixels of a result, so that a strip under a config without a crop cannot take gigabytes. */
const MAX_OUTPUT_PIXELS = 1 << 24;

/**
 * Bit-identical to Hugging Face's CLIP and LLaVA image processors in their Pillow form (their torchvision form differs
 * by up to one step of 255 per pixel). All steps but the last work on bytes, so that rescale and normalise are a table
 * of 256 values per channel. Only the pixels inside the crop are computed.
 *
 * @throws EngineError `image_too_large`.
 */
export function toPixelValues(image: DecodedImage, plan: PreprocessorPlan): PixelValues {
  const source = plan.padToSquare === null ? image : padToSquare(image, plan.padToSquare);
  const resized = plan.resize === null ? source : resizedSize(source, plan.resize.rule);
  const { width, height } = plan.centerCrop ?? resized;
  const numPixels = width * height;
  if (numPixels > MAX_OUTPUT_PIXELS) {
    throw new EngineError(
      "image_too_large",
      `The image would be ${width}x${height} = ${numPixels} pixels for the model; the limit is ${MAX_OUTPUT_PIXELS}.`,
    );
  }

  // Negative if the picture is smaller than its crop: it then starts inside the black border.
  const left = Math.floor((resized.width - width) / 2);
  const top = Math.floor((resized.height - height) / 2);
  const visible = resample(source, {
    width: resized.width,
    height: resized.height,
    filter: plan.resize?.filter ?? "nearest",
    window: {
      left: Math.max(left, 0),
      top: Math.max(top, 0),
      width: Math.min(width, resized.width),
      height: Math.min(height, resized.height),
    },
  });

  const pixelValues = new Float32Array(3 * numPixels);
  for (let channel = 0; channel < 3; channel++) {
    const values = valueOfByte(plan, channel);
    const plane = pixelValues.subarray(channel * numPixels, (channel + 1) * numPixels);
    if (visible.data.length < pixelValues.length) plane.fill(values[0]!);
    for (let row = 0; row < visible.height; row++) {
      let from = row * visible.width * 3 + channel;
      const start = (row + Math.max(-top, 0)) * width + Math.max(-left, 0);
      for (let to = start; to < start + visible.width; to++) {
        plane[to] = values[visible.data[from]!]!;
        from += 3;
      }
    }
  }
  return { pixelValues, shape: [3, height, width], imageSize: { width: image.width, height: image.height } };
}

/** [256]: rescaled in double and rounded to float32, then mean and deviation in float32, like numpy. */
export function valueOfByte(
  { rescaleFactor, normalize }: Pick<PreprocessorPlan, "rescaleFactor" | "normalize">,
  channel: number,
): Float32Array {
  const values = new Float32Array(256);
  for (let byte = 0; byte < 256; byte++) {
    const rescaled = Math.fround(rescaleFactor === null ? byte : byte * rescaleFactor);
    values[byte] =
      normalize === null
        ? rescaled
        : Math.fround(rescaled - Math.fround(normalize.mean[channel]!)) / Math.fround(normalize.std[channel]!);
  }
  return values;
}

function resizedSize({ width, height }: PixelSize, rule: ResizeRule): PixelSize {
  if (rule.kind === "exact") return rule;
  return width <= height
    ? { width: rule.edge, height: Math.trunc((rule.edge * height) / width) }
    : { width: Math.trunc((rule.edge * width) / height), height: rule.edge };
}
