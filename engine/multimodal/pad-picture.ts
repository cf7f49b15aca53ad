/** Puts a picture onto a larger area of one colour. */
import { EngineError } from "../contract/errors.ts";
import type { RgbImage } from "./pixel-program.ts";
import type { ImageSize } from "./processing-info.ts";

/** The channels are bytes. */
type Colour = readonly [red: number, green: number, blue: number];

/** The picture is in the middle; an odd pixel of the border goes to the bottom or right. */
export function padPicture(image: RgbImage, { width, height }: ImageSize, colour: Colour): RgbImage {
  if (image.width === width && image.height === height) return image;
  const data = new Uint8Array(width * height * 3);
  data.set(colour);
  // The filled part is copied behind itself, doubling each time.
  for (let filled = 3; filled < data.length; filled *= 2) data.copyWithin(filled, 0, filled);
  const left = Math.floor((width - image.width) / 2);
  const top = Math.floor((height - image.height) / 2);
  const stride = image.width * 3;
  for (let row = 0; row < image.height; row++) {
    data.set(image.data.subarray(row * stride, (row + 1) * stride), ((row + top) * width + left) * 3);
  }
  return { width, height, data };
}

/**
 * A square may have this many pixels, or four times those of the picture. This leaves room for large photographs and
 * panoramas, but a strip one pixel wide does not become a square of terabytes.
 */
const MAX_SQUARE_PIXELS = 1 << 26;
const MAX_SQUARE_GROWTH = 4;

/**
 * The picture in a square of its longer edge.
 *
 * @throws EngineError `image_too_large`.
 */
export function padToSquare(image: RgbImage, colour: Colour): RgbImage {
  const edge = Math.max(image.width, image.height);
  const maxPixels = Math.max(MAX_SQUARE_PIXELS, image.width * image.height * MAX_SQUARE_GROWTH);
  if (edge * edge > maxPixels) {
    throw new EngineError(
      "image_too_large",
      `The image has ${image.width}x${image.height} pixels, and ${edge * edge} when padded to the square that the model needs; the limit is ${maxPixels}.`,
    );
  }
  return padPicture(image, { width: edge, height: edge }, colour);
}

/** The colour of a mean in shares of full brightness, rounded down like Python's `int(x * 255)`. */
export function colourOf([red, green, blue]: readonly [number, number, number]): Colour {
  return [byteOf(red), byteOf(green), byteOf(blue)];
}

function byteOf(share: number): number {
  return Math.min(Math.max(Math.trunc(share * 255), 0), 255);
}
