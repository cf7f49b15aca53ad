/** Accepts the return value of a logits processor's `apply`. */
import { shown } from "../../excerpt.ts";
import type { Logits } from "./logits-processor.ts";
import { refusePromise } from "./synchronous.ts";

/** Of the result of `apply`. */
export class WrongShape extends TypeError {}

/**
 * Copies a returned buffer of the same shape into `logits`.
 *
 * @throws WrongShape if nothing or another shape was returned, and TypeError for a promise.
 */
export function takeReturned(logits: Logits, returned: unknown): void {
  if (returned === logits) return;
  refusePromise(returned, "apply()");
  const { numRequests, vocabSize } = logits;
  const data = returned instanceof Float32Array ? returned : dataOf(returned);
  if (data === null || data.length !== numRequests * vocabSize) {
    const got = data === null ? describeReturned(returned) : `${data.length} values`;
    throw new WrongShape(`apply() must return logits of ${numRequests} x ${vocabSize} values, got ${got}`);
  }
  // Compares the memory, because accessing `logits.data` would access every row.
  const ours = logits.row(0);
  if (data.buffer !== ours.buffer || data.byteOffset !== ours.byteOffset) logits.data.set(data);
}

function dataOf(returned: unknown): Float32Array | null {
  const isLogits = typeof returned === "object" && returned !== null && "data" in returned;
  return isLogits && returned.data instanceof Float32Array ? returned.data : null;
}

/** In constant time: a row as text has megabytes. */
export function describeReturned(returned: unknown): string {
  if (!ArrayBuffer.isView(returned)) return shown(returned);
  return returned instanceof Float64Array ? "a Float64Array" : "a view of another type";
}
