/** Draws a row's token from its most likely candidates, if they suffice. */
import { NUM_BUCKETS } from "../logits-kernel.ts";
import { STEPS_PER_UNIT } from "./exponential.ts";
import type { DrawOptions } from "./token-draw.ts";

/** Returned instead of a token id: the whole row must be read. */
export const UNDECIDED = -2;

/**
 * The most likely tokens of a row of logits, and the mass of all of them. Devices order equal values differently, and 16
 * bits leave many: among the tokens that are equal to the last candidate, any may be missing.
 */
export interface Candidates {
  /** Logits, largest first. */
  readonly values: Float32Array;
  /** The values' token ids; those of equal values in any order. */
  readonly tokenIds: Int32Array;
  /** Sum over the whole row of exp((logit - largest logit) * scale), as a device computes it. */
  readonly mass: number;
  /** Whether the row has no other tokens. */
  readonly isWholeRow: boolean;
}

export interface CandidateDrawOptions extends DrawOptions {
  /** Tokens of less than this share of the largest probability are dropped first; 0 is off. */
  readonly minP: number;
}

/** The largest relative error of a device's mass: it sums a vocabulary of 32-bit numbers in an unspecified order. */
export const MAX_MASS_ERROR = 1e-4;
/** The largest relative difference between sums of candidates here and in `TokenDraw`, whose exponentials are 32-bit. */
const MAX_SUM_ERROR = 1e-6;

/** The most likely token, the lowest id among equals; `UNDECIDED` if that one may be missing. */
export function mostLikely({ values, tokenIds, mass, isWholeRow }: Candidates): number {
  if (!Number.isFinite(mass)) return UNDECIDED;
  const largest = values[0];
  if (!isWholeRow && values[values.length - 1] === largest) return UNDECIDED;
  let lowestId = tokenIds[0]!;
  for (let index = 1; values[index] === largest; index++) lowestId = Math.min(lowestId, tokenIds[index]!);
  return lowestId;
}

/** A mass that is known up to its error. */
interface MassRange {
  readonly low: number;
  readonly high: number;
}

/**
 * Mutable scratch memory for one draw at a time.
 *
 * It draws the token that `TokenDraw` draws from the whole row, or none. Both walk the tokens in the same order: by
 * bucket of the distance from the largest logit, and in a bucket by token id. A mass with an error leaves a range of
 * places for the draw, and the token is decided only if both ends of the range fall on it.
 */
export class CandidateDraw {
  /** [candidates]: logits times the scale, as float32; largest first. */
  #scaled = new Float32Array(0);
  /** [candidates]: ascending among equal scaled logits. */
  #tokenIds = new Int32Array(0);
  /** [candidates]: see `TokenDraw`; ascending. */
  #buckets = new Int32Array(0);
  /** [candidates]: probability relative to the most likely token's. */
  #masses = new Float64Array(0);
  /** The candidates from 0 up to, but not including, this one may be drawn. */
  #end = 0;
  #isWholeRow = false;
  /** Whether no token that is not a candidate may be drawn. */
  #isComplete = false;

  /** Token id, or `undecided`. */
  draw({ values, tokenIds, mass, isWholeRow }: Candidates, options: CandidateDrawOptions): number {
    if (!Number.isFinite(mass) || !this.#prepare(values, tokenIds, options.scale)) return UNDECIDED;
    this.#isWholeRow = isWholeRow;
    this.#isComplete = isWholeRow;
    this.#dropUnlikely(options.minP);
    let range = this.#isComplete ? this.#sum() : around(mass, MAX_MASS_ERROR);
    // Unknown tokens may be dropped as well.
    if (!this.#isComplete && options.minP > 0) range = { low: this.#sum().low, high: range.high };
    if (options.topK > 0) {
      if (!this.#cutTopK(options.topK)) return UNDECIDED;
      if (this.#isComplete) range = this.#sum();
    }
    if (options.topP < 1) {
      if (!this.#cutTopP(options.topP, range)) return UNDECIDED;
      range = this.#sum();
    }
    const lowest = this.#locate(options.uniform * range.low);
    return lowest === this.#locate(options.uniform * range.high) ? lowest : UNDECIDED;
  }

  /** Returns false for a row with infinities or NaN, which the candidates do not describe sufficiently. */
  #prepare(values: Float32Array, tokenIds: Int32Array, scale: number): boolean {
    const numCandidates = values.length;
    if (this.#scaled.length !== numCandidates) {
      this.#scaled = new Float32Array(numCandidates);
      this.#tokenIds = new Int32Array(numCandidates);
      this.#buckets = new Int32Array(numCandidates);
      this.#masses = new Float64Array(numCandidates);
    }
    const largest = Math.fround(values[0]! * scale);
    if (!Number.isFinite(largest)) return false;
    for (let index = 0; index < numCandidates; index++) {
      const scaled = Math.fround(values[index]! * scale);
      if (Number.isNaN(scaled)) return false;
      // Rounded after every operation, as the kernel does that fills `TokenDraw`'s buckets.
      const position = Math.fround(Math.fround(largest - scaled) * STEPS_PER_UNIT);
      this.#scaled[index] = scaled;
      this.#buckets[index] = position < NUM_BUCKETS ? Math.trunc(position) : NUM_BUCKETS;
      this.#masses[index] = Math.exp(scaled - largest);
    }
    this.#tokenIds.set(tokenIds);
    this.#sortEqual();
    return true;
  }

  /**
   * Rounding after the scale makes further logits equal, so this is not left to the device. By insertion, since few
   * neighbours are equal and most of those are in order.
   */
  #sortEqual(): void {
    const scaled = this.#scaled;
    const tokenIds = this.#tokenIds;
    for (let index = 1; index < scaled.length; index++) {
      const tokenId = tokenIds[index]!;
      let place = index;
      for (; place > 0 && scaled[place - 1] === scaled[index] && tokenIds[place - 1]! > tokenId; place--) {
        tokenIds[place] = tokenIds[place - 1]!;
      }
      tokenIds[place] = tokenId;
    }
  }

  /** Keeps the candidates that are likely enough. If one is not, neither is any token that is not a candidate. */
  #dropUnlikely(minP: number): void {
    const numCandidates = this.#scaled.length;
    const smallestKept = minP > 0 ? this.#scaled[0]! + Math.log(minP) : -Infinity;
    this.#end = 0;
    while (
      this.#end < numCandidates &&
      this.#buckets[this.#end]! < NUM_BUCKETS &&
      this.#scaled[this.#end]! >= smallestKept
    ) {
      this.#end++;
    }
    if (this.#end < numCandidates) this.#isComplete = true;
  }

  /** Tokens equal to the k-th stay. Returns false if tokens that are not candidates may be among the k most likely. */
  #cutTopK(topK: number): boolean {
    if (topK >= this.#end) return this.#isComplete;
    const threshold = this.#scaled[topK - 1];
    let numKept = topK;
    while (numKept < this.#end && this.#scaled[numKept] === threshold) numKept++;
    if (numKept === this.#end) return this.#isComplete;
    this.#end = numKept;
    this.#isComplete = true;
    return true;
  }

  /** Keeps tokens, most likely first, while the mass before them is below the share. Returns false if unknown. */
  #cutTopP(topP: number, range: MassRange): boolean {
    const numKept = this.#countBelow(topP * range.low);
    if (numKept !== this.#countBelow(topP * range.high)) return false;
    if (numKept > this.#end && !this.#isComplete) return false;
    const end = Math.min(numKept, this.#end);
    // Among tokens with equal logits, the lower ids are kept, and they may not be among the candidates.
    if (!this.#isWholeRow && this.#scaled[end - 1] === this.#scaled[this.#scaled.length - 1]) return false;
    this.#end = end;
    this.#isComplete = true;
    return true;
  }

  /** The number of tokens before which the mass is below `wanted`; one more than there are if it stays below. */
  #countBelow(wanted: number): number {
    let mass = 0;
    for (let index = 0; index < this.#end; index++) {
      if (mass >= wanted) return index;
      mass += this.#masses[index]!;
    }
    return mass >= wanted ? this.#end : this.#end + 1;
  }

  #sum(): MassRange {
    let mass = 0;
    for (let index = 0; index < this.#end; index++) mass += this.#masses[index]!;
    return around(mass, MAX_SUM_ERROR);
  }

  /** The token at which the mass, added up bucket by bucket and in each by token id, exceeds `target`. */
  #locate(target: number): number {
    const lastBucket = this.#buckets[this.#buckets.length - 1];
    let mass = 0;
    for (let start = 0; start < this.#end;) {
      const bucket = this.#buckets[start];
      // Tokens of this bucket may be missing.
      if (!this.#isComplete && bucket === lastBucket) return UNDECIDED;
      let end = start;
      let bucketMass = 0;
      while (end < this.#end && this.#buckets[end] === bucket) bucketMass += this.#masses[end++]!;
      if (end === this.#end && !this.#isComplete) return UNDECIDED;
      if (mass + bucketMass > target || end === this.#end) return this.#locateWithin(start, end, target - mass);
      mass += bucketMass;
      start = end;
    }
    return UNDECIDED;
  }

  #locateWithin(start: number, end: number, target: number): number {
    const tokenIds = this.#tokenIds;
    const order = Array.from({ length: end - start }, (_, index) => start + index);
    order.sort((left, right) => tokenIds[left]! - tokenIds[right]!);
    let mass = 0;
    for (const index of order) {
      mass += this.#masses[index]!;
      if (mass > target) return tokenIds[index]!;
    }
    // Rounding may leave the target slightly above the sum.
    return tokenIds[order[order.length - 1]!]!;
  }
}

function around(mass: number, maxError: number): MassRange {
  return { low: mass * (1 - maxError), high: mass * (1 + maxError) };
}
