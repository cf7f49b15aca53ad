/** Converts decoded samples of any colour model to RGB with Pillow's integer arithmetic. */

/** `alpha` models carry one more sample, not premultiplied. */
export type ColourModel = "grey" | "grey-alpha" | "rgb" | "rgb-alpha" | "cmyk";

/** Row-major [n, samples of the model], 8 bits each, to [n, 3]. */
export function toRgb(samples: Uint8Array, model: Exclude<ColourModel, "rgb">): Uint8Array {
  switch (model) {
    case "grey":
      return blendOnWhite(samples, { stride: 1, hasAlpha: false });
    case "grey-alpha":
      return blendOnWhite(samples, { stride: 2, hasAlpha: true });
    case "rgb-alpha":
      return blendOnWhite(samples, { stride: 4, hasAlpha: true });
    case "cmyk":
      return cmykToRgb(samples);
    default:
      return model satisfies never;
  }
}

interface SampleLayout {
  /** Samples of one pixel. */
  readonly stride: 1 | 2 | 4;
  readonly hasAlpha: boolean;
}

/** Composites on opaque white like Pillow's `alpha_composite`. */
function blendOnWhite(samples: Uint8Array, { stride, hasAlpha }: SampleLayout): Uint8Array {
  const numPixels = samples.length / stride;
  const rgb = new Uint8Array(numPixels * 3);
  const green = stride === 4 ? 1 : 0;
  const blue = stride === 4 ? 2 : 0;
  for (let from = 0, to = 0; to < rgb.length; from += stride, to += 3) {
    const alpha = hasAlpha ? samples[from + stride - 1]! : 255;
    const white = 255 * (255 - alpha);
    rgb[to] = divideBy255(samples[from]! * alpha + white);
    rgb[to + 1] = divideBy255(samples[from + green]! * alpha + white);
    rgb[to + 2] = divideBy255(samples[from + blue]! * alpha + white);
  }
  return rgb;
}

/** Pillow's `cmyk2rgb`: no ink profile, each ink darkens what black leaves. */
function cmykToRgb(samples: Uint8Array): Uint8Array {
  const rgb = new Uint8Array((samples.length / 4) * 3);
  for (let from = 0, to = 0; to < rgb.length; from += 4, to += 3) {
    const light = 255 - samples[from + 3]!;
    rgb[to] = light - divideBy255(samples[from]! * light);
    rgb[to + 1] = light - divideBy255(samples[from + 1]! * light);
    rgb[to + 2] = light - divideBy255(samples[from + 2]! * light);
  }
  return rgb;
}

/** Rounded quotient of a number in [0, 255 * 255]. */
function divideBy255(product: number): number {
  const sum = product + 128;
  return (sum + (sum >> 8)) >> 8;
}

/** The first samples of each pixel of `stride`. */
export function firstSamples(
  samples: Uint8Array,
  { numSamples, stride }: { readonly numSamples: number; readonly stride: number },
): Uint8Array {
  const kept = new Uint8Array((samples.length / stride) * numSamples);
  for (let from = 0, to = 0; to < kept.length; from += stride) {
    for (let sample = 0; sample < numSamples; sample++) kept[to++] = samples[from + sample]!;
  }
  return kept;
}

/** 8 bits of each number of 16, in the machine's order of bytes. */
export function highBytes(bytes: Uint8Array): Uint8Array {
  const numbers = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 2);
  return Uint8Array.from(numbers, (number) => number >> 8);
}
