/** Random identifiers of conversations, turns and pictures. */

const NUM_BYTES = 12;

/** Not `crypto.randomUUID`, which pages that come over plain http do not have. */
export function createId() {
  return toHex(crypto.getRandomValues(new Uint8Array(NUM_BYTES)));
}

/** @param {Uint8Array} bytes */
export function toHex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
