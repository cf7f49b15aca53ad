/**
 * Resizes pictures between the nearest pixels, without smoothing those that shrink: PyTorch's `interpolate` with
 * `mode="bilinear"` in 32-bit floats, rounded to bytes with halves to the even one. The order of roundings is that of its
 * kernel on a CPU, because a sum near the middle of two bytes would become the other one.
 */
import type { RgbImage } from "../../multimodal/pixel-program.ts";
import type { ImageSize } from "../../multimodal/processing-info.ts";
import { roundHalfToEven } from "../../round-half-to-even.ts";

const { fround } = Math;

/** For each output: its two pixels and the share of the second. */
interface Axis {
  readonly first: Int32Array;
  readonly second: Int32Array;
  readonly share: Float32Array;
}

export function resizeBilinear({ data: from, ...size }: RgbImage, { width, height }: ImageSize): RgbImage {
  const columns = axisOf(size.width, width);
  const rows = axisOf(size.height, height);
  const data = new Uint8Array(width * height * 3);
  const stride = size.width * 3;
  let to = 0;
  for (let row = 0; row < height; row++) {
    const above = rows.first[row]! * stride;
    const below = rows.second[row]! * stride;
    const lower = rows.share[row]!;
    const upper = fround(1 - lower);
    for (let column = 0; column < width; column++) {
      const left = columns.first[column]! * 3;
      const right = columns.second[column]! * 3;
      const farther = columns.share[column]!;
      const nearer = fround(1 - farther);
      const upperLeft = fround(upper * nearer);
      const upperRight = fround(upper * farther);
      const lowerLeft = fround(lower * nearer);
      const lowerRight = fround(lower * farther);
      for (let channel = 0; channel < 3; channel++) {
        // Products of a share and a byte are exact in 64 bits, so that each line rounds once, as fused instructions do.
        let sum = fround(from[above + right + channel]! * upperRight);
        sum = fround(from[above + left + channel]! * upperLeft + sum);
        sum = fround(from[below + left + channel]! * lowerLeft + sum);
        sum = fround(from[below + right + channel]! * lowerRight + sum);
        data[to++] = roundHalfToEven(sum);
      }
    }
  }
  return { width, height, data };
}

function axisOf(from: number, to: number): Axis {
  const axis = { first: new Int32Array(to), second: new Int32Array(to), share: new Float32Array(to) };
  const scale = fround(from / to);
  for (let index = 0; index < to; index++) {
    const place = Math.max(fround(scale * (index + 0.5) - 0.5), 0);
    const first = Math.min(Math.floor(place), from - 1);
    axis.first[index] = first;
    axis.second[index] = Math.min(first + 1, from - 1);
    axis.share[index] = Math.min(fround(place - first), 1);
  }
  return axis;
}
