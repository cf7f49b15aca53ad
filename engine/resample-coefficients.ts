/** The one-dimensional half of a resize: the input pixels of each output pixel, and their weights. */
import { EngineError } from "./contract/errors.ts";

/** Pillow's filters, as numbered in `resample` of preprocessor_config.json. */
export type ResampleFilterName = "nearest" | "lanczos" | "bilinear" | "bicubic" | "box" | "hamming";

/**
 * Fixed-point fraction bits of a weight: 32 minus 8 for the pixel and 2 of headroom for overshoot and sign; as in
 * images/kernel/filter.ts.
 */
const PRECISION_BITS = 32 - 8 - 2;

export interface AxisCoefficients {
  readonly numOutputs: number;
  /** Stride of `weights`: the maximum number of input pixels of any output. */
  readonly maxTaps: number;
  /** [numOutputs]: first input pixel of each output. */
  readonly starts: Int32Array;
  /** [numOutputs]: number of input pixels of each output. */
  readonly numTaps: Int32Array;
  /** Row-major [numOutputs, maxTaps], scaled by 2^PRECISION_BITS; zero beyond `numTaps`. */
  readonly weights: Int32Array;
}

interface Filter {
  /** Half width in output pixels. */
  readonly support: number;
  weight(distance: number): number;
}

/** The required part of an output axis; the rest is not computed. */
export interface AxisWindow {
  readonly inputSize: number;
  /** Size of the whole output axis, which determines the scale. */
  readonly outputSize: number;
  readonly start: number;
  readonly length: number;
}

/**
 * Pillow's `precompute_coeffs`: the filter is centred on each output pixel, stretched by the scale when shrinking, cut
 * at the borders and normalised to a sum of 1, all in doubles, then rounded half away from zero to fixed point.
 */
export function computeCoefficients(
  filterName: Exclude<ResampleFilterName, "nearest">,
  { inputSize, outputSize, start, length }: AxisWindow,
): AxisCoefficients {
  const filter = resampleFilters[filterName];
  const scale = inputSize / outputSize;
  const filterScale = Math.max(scale, 1);
  const support = filter.support * filterScale;
  const maxTaps = Math.min(Math.ceil(support) * 2 + 1, inputSize);
  if (maxTaps * length > MAX_WEIGHTS) {
    throw new EngineError(
      "image_too_large",
      `Resizing ${inputSize} pixels to ${outputSize} takes ${maxTaps * length} weights; the limit is ${MAX_WEIGHTS}.`,
    );
  }

  const starts = new Int32Array(length);
  const numTaps = new Int32Array(length);
  const weights = new Int32Array(length * maxTaps);
  const exact = new Float64Array(maxTaps);
  for (let output = 0; output < length; output++) {
    const center = (start + output + 0.5) * scale;
    const first = Math.max(Math.trunc(center - support + 0.5), 0);
    const count = Math.min(Math.trunc(center + support + 0.5), inputSize) - first;
    let sum = 0;
    for (let tap = 0; tap < count; tap++) {
      exact[tap] = filter.weight((tap + first - center + 0.5) * (1 / filterScale));
      sum += exact[tap]!;
    }
    for (let tap = 0; tap < count; tap++) {
      const weight = (sum === 0 ? exact[tap]! : exact[tap]! / sum) * 2 ** PRECISION_BITS;
      weights[output * maxTaps + tap] = Math.trunc(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    starts[output] = first;
    numTaps[output] = count;
  }
  return { numOutputs: length, maxTaps, starts, numTaps, weights };
}

/** 64 MiB of weights: far above a photograph's needs, far below those of a strip of millions of pixels. */
const MAX_WEIGHTS = 1 << 24;

const resampleFilters: Readonly<Record<Exclude<ResampleFilterName, "nearest">, Filter>> = {
  box: { support: 0.5, weight: (x) => (x > -0.5 && x <= 0.5 ? 1 : 0) },
  bilinear: { support: 1, weight: (x) => Math.max(1 - Math.abs(x), 0) },
  hamming: { support: 1, weight: hamming },
  bicubic: { support: 2, weight: bicubic },
  lanczos: { support: 3, weight: (x) => (x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

function hamming(distance: number): number {
  const x = Math.abs(distance);
  if (x === 0) return 1;
  if (x >= 1) return 0;
  return (Math.sin(x * Math.PI) / (x * Math.PI)) * (0.54 + 0.46 * Math.cos(x * Math.PI));
}

/** Keys' cubic convolution with a = -0.5. */
function bicubic(distance: number): number {
  const a = -0.5;
  const x = Math.abs(distance);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(x * Math.PI) / (x * Math.PI);
}
