/** Which KV slots are taken, and how many tokens each keeps. */
import { invariant } from "../errors.ts";

/** Mutable. The scheduler allocates and frees, the runner records what it has written. */
export class KvSlots {
  readonly numSlots: number;
  /** Positions of one slot. */
  readonly maxLen: number;
  readonly #isTaken: Uint8Array;
  /** By slot: leading positions that must not be overwritten. */
  readonly #numKeptTokens: Int32Array;
  #numTaken = 0;
  #numKept = 0;

  constructor(numSlots: number, maxLen: number) {
    this.numSlots = numSlots;
    this.maxLen = maxLen;
    this.#isTaken = new Uint8Array(numSlots);
    this.#numKeptTokens = new Int32Array(numSlots);
  }

  get numFree(): number {
    return this.numSlots - this.#numTaken;
  }

  /** Share of all positions that keep a token, 0 to 1. */
  get usage(): number {
    return this.#numKept / (this.numSlots * this.maxLen);
  }

  /** The lowest free slot, so that the slots in use stay close together; null when all are taken. */
  tryAllocate(): number | null {
    const slot = this.#isTaken.indexOf(0);
    if (slot === -1) return null;
    this.#isTaken[slot] = 1;
    this.#numTaken++;
    return slot;
  }

  free(slot: number): void {
    invariant(this.#isTaken[slot] === 1, `KV slot ${slot} is freed but not taken`);
    this.setNumKeptTokens(slot, 0);
    this.#isTaken[slot] = 0;
    this.#numTaken--;
  }

  numKeptTokens(slot: number): number {
    return this.#numKeptTokens[slot];
  }

  setNumKeptTokens(slot: number, numTokens: number): void {
    invariant(numTokens < this.maxLen, `KV slot ${slot} keeps ${numTokens} tokens; it has ${this.maxLen} positions`);
    this.#numKept += numTokens - this.#numKeptTokens[slot];
    this.#numKeptTokens[slot] = numTokens;
  }
}
