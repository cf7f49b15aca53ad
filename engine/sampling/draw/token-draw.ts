/** Draws a token of a row by temperature, top-k and top-p without sorting the vocabulary. */
import { NUM_BUCKETS, NUM_OUTSIDE } from "../logits-kernel.ts";
import type { LogitsKernel } from "../logits-kernel.ts";
import { expOfStep } from "./exponential.ts";

/** Returned instead of a token id. */
export const NO_TOKEN = -1;

export interface DrawOptions {
  /** Factor for every logit: 1 / temperature as a float32, or 1 if the row was scaled in place. */
  readonly scale: number;
  /** 0 turns it off. Tokens equal to the k-th are kept. */
  readonly topK: number;
  /** 1 turns it off. Of tokens with equal logits, the lower ids are kept. */
  readonly topP: number;
  /** In [0, 1). */
  readonly uniform: number;
}

/** The tokens that can be drawn: all above the threshold, and the first few equal to it. */
interface Cut {
  readonly bucket: number;
  readonly threshold: number;
  readonly numAtThreshold: number;
  /** Sum of exp(logit - largest logit) of the kept tokens. */
  readonly mass: number;
}

/**
 * Mutable scratch memory for one draw at a time.
 *
 * One pass assigns every token to a bucket by its distance from the largest logit and sums the buckets' probability
 * mass. A walk over the buckets from the top finds the cuts of top-k and top-p, so only the bucket that contains a cut
 * is sorted. A second walk finds the bucket of the drawn mass, whose tokens are visited by id. Buckets are the steps of
 * `expOfStep`.
 */
export class TokenDraw {
  readonly #kernel: LogitsKernel;
  /** [vocabSize] */
  readonly #bucketOf: Uint16Array;
  /** [NUM_BUCKETS + NUM_OUTSIDE]; filled for the current row only if top-k needs it. */
  readonly #counts = new Int32Array(NUM_BUCKETS + NUM_OUTSIDE);
  /** [NUM_BUCKETS]; relative to the bucket's upper edge while filling, to the largest logit afterwards. */
  readonly #masses: Float64Array;
  /** [vocabSize] */
  readonly #values: Float32Array;
  #row: Float32Array;
  #scale = 1;
  #largest = 0;

  constructor(kernel: LogitsKernel) {
    this.#kernel = kernel;
    this.#bucketOf = kernel.bucketOf;
    this.#masses = kernel.masses;
    this.#values = new Float32Array(kernel.bucketOf.length);
    this.#row = this.#values;
  }

  /**
   * Returns a token id, or `NO_TOKEN` if every logit is -Infinity or NaN.
   *
   * @param row One of the kernel's rows; not edited.
   */
  draw(row: Float32Array, { scale, topK, topP, uniform }: DrawOptions): number {
    this.#row = row;
    this.#scale = scale;
    this.#largest = Math.fround(this.#kernel.maximum(row) * scale);
    if (this.#largest === -Infinity) return NO_TOKEN;
    if (this.#largest === Infinity) return row.indexOf(Infinity);
    this.#fillBuckets();
    let cut: Cut = { bucket: NUM_BUCKETS - 1, threshold: -Infinity, numAtThreshold: 0, mass: this.#totalMass() };
    if (topK > 0 && topK < row.length) cut = this.#cutTopK(topK, cut);
    if (topP < 1) cut = this.#cutTopP(topP, cut);
    return this.#locate(uniform * cut.mass, cut);
  }

  /** Rounded to float32, so that a row scaled in place gives the same draws as one scaled here. */
  #scaled(tokenId: number): number {
    return Math.fround(this.#row[tokenId]! * this.#scale);
  }

  #fillBuckets(): void {
    this.#kernel.fillBuckets(this.#row, this.#scale, this.#largest);
    const masses = this.#masses;
    for (let bucket = 0; bucket < NUM_BUCKETS; bucket++) masses[bucket]! *= expOfStep[bucket]!;
  }

  #countTokens(): void {
    const bucketOf = this.#bucketOf;
    const counts = this.#counts.fill(0);
    for (let tokenId = 0; tokenId < bucketOf.length; tokenId++) counts[bucketOf[tokenId]!]! += 1;
  }

  #totalMass(): number {
    let mass = 0;
    for (let bucket = 0; bucket < NUM_BUCKETS; bucket++) mass += this.#masses[bucket]!;
    return mass;
  }

  #cutTopK(topK: number, uncut: Cut): Cut {
    this.#countTokens();
    let count = 0;
    let mass = 0;
    for (let bucket = 0; bucket < NUM_BUCKETS; bucket++) {
      const inBucket = this.#counts[bucket]!;
      if (count + inBucket < topK) {
        count += inBucket;
        mass += this.#masses[bucket]!;
        continue;
      }
      const values = this.#sortedValues(bucket);
      const threshold = values[topK - count - 1]!;
      let numKept = topK - count;
      while (numKept < values.length && values[numKept] === threshold) numKept++;
      for (let index = 0; index < numKept; index++) mass += Math.exp(values[index]! - this.#largest);
      return { bucket, threshold, numAtThreshold: countEqual(values, threshold), mass };
    }
    return uncut;
  }

  /**
   * Keeps tokens, most likely first, while the mass before them is below `topP` of the mass that the earlier cut left.
   */
  #cutTopP(topP: number, earlier: Cut): Cut {
    const wanted = topP * earlier.mass;
    let mass = 0;
    for (let bucket = 0; bucket < earlier.bucket; bucket++) {
      const inBucket = this.#masses[bucket]!;
      if (mass + inBucket >= wanted) return this.#cutWithin(bucket, mass, wanted, earlier);
      mass += inBucket;
    }
    return this.#cutWithin(earlier.bucket, mass, wanted, earlier);
  }

  #cutWithin(bucket: number, massAbove: number, wanted: number, earlier: Cut): Cut {
    let mass = massAbove;
    let threshold = Infinity;
    let numAtThreshold = 0;
    for (const value of this.#sortedValues(bucket)) {
      if (mass >= wanted || value < earlier.threshold) break;
      numAtThreshold = value === threshold ? numAtThreshold + 1 : 1;
      threshold = value;
      mass += Math.exp(value - this.#largest);
    }
    return { bucket, threshold, numAtThreshold, mass };
  }

  /** Scaled logits of a bucket, largest first; valid until the next call. */
  #sortedValues(bucket: number): Float32Array {
    let count = 0;
    for (let tokenId = this.#bucketOf.indexOf(bucket); tokenId !== -1;) {
      this.#values[count++] = this.#scaled(tokenId);
      tokenId = this.#bucketOf.indexOf(bucket, tokenId + 1);
    }
    return this.#values.subarray(0, count).sort().reverse();
  }

  /** The token at which the mass, summed by bucket and then by token id, exceeds `target`. */
  #locate(target: number, cut: Cut): number {
    let mass = 0;
    let bucket = 0;
    while (bucket < cut.bucket && mass + this.#masses[bucket]! <= target) mass += this.#masses[bucket++]!;
    let last = -1;
    let numAtThreshold = 0;
    for (let tokenId = this.#bucketOf.indexOf(bucket); tokenId !== -1;) {
      const value = this.#scaled(tokenId);
      const isKept =
        bucket < cut.bucket ||
        value > cut.threshold ||
        (value === cut.threshold && numAtThreshold++ < cut.numAtThreshold);
      if (isKept) {
        last = tokenId;
        mass += Math.exp(value - this.#largest);
        if (mass > target) return tokenId;
      }
      tokenId = this.#bucketOf.indexOf(bucket, tokenId + 1);
    }
    // Rounding may leave the target slightly above the sum.
    return last === -1 ? this.#lastAbove(bucket) : last;
  }

  /** The last token of the nearest higher bucket that has one; the top bucket always does. */
  #lastAbove(bucket: number): number {
    let above = bucket - 1;
    while (above > 0 && this.#masses[above] === 0) above--;
    return this.#bucketOf.lastIndexOf(above);
  }
}

function countEqual(values: Float32Array, value: number): number {
  let count = 0;
  for (const candidate of values) if (candidate === value) count++;
  return count;
}
