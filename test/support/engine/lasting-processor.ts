/**
 * A logits processor for answers that last until they are told to end: until the file exists that a request names as
 * `lasts_until`, it forbids the request's stop tokens, and each step takes `STEP_MS` longer; then it leaves only the first
 * of them. Unlike a wait for the file, this leaves the engine thread to aborts and to other requests.
 */
import { existsSync } from "node:fs";

import { RequestLogitsProcessorAdapter } from "../../../engine/index.ts";
import type { Logits, SamplingParams } from "../../../engine/index.ts";

/** An answer of 1,500 tokens takes longer than any wait for an event of a test. */
const STEP_MS = 25;
const pause = new Int32Array(new SharedArrayBuffer(Int32Array.BYTES_PER_ELEMENT));

export class Lasting extends RequestLogitsProcessorAdapter {
  static readonly moduleUrl: string = import.meta.url;
  #lasts = false;

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ stopTokenIds, extraArgs: { lasts_until: file } }: SamplingParams) {
    if (typeof file !== "string") return null;
    return (_: readonly number[], row: Float32Array) => {
      if (existsSync(file)) {
        row.fill(Number.NEGATIVE_INFINITY);
        row[stopTokenIds[0]!] = 0;
      } else {
        this.#lasts = true;
        for (const tokenId of stopTokenIds) row[tokenId] = Number.NEGATIVE_INFINITY;
      }
      return row;
    };
  }

  override apply(logits: Logits): Logits {
    this.#lasts = false;
    const applied = super.apply(logits);
    // Once for all requests of the step.
    if (this.#lasts) Atomics.wait(pause, 0, 0, STEP_MS);
    return applied;
  }
}
