/** Encodes, decodes and measures the values of a cache. */

export interface ValueCodec<Value> {
  /** The whole value as bytes. May be called long after the value was set, so values are immutable. */
  encode(key: string, value: Value): Uint8Array;
  /**
   * Null for bytes that are not a value of this key: foreign, truncated, altered, of another version. May keep views of
   * `bytes`, which start at a multiple of 8 in shared memory.
   */
  decode(key: string, bytes: Uint8Array): Value | null;
  /** Memory that the value takes. */
  byteLengthOf(value: Value): number;
}
