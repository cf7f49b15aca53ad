/** What a cache must know of the values it holds. */

export interface ValueCodec<Value> {
  /** The whole value as bytes; may be called long after the value was set, so values are immutable. */
  encode(key: string, value: Value): Uint8Array;
  /**
   * Null for bytes that are not a value of this key: foreign, truncated, altered, of another version. May keep views of
   * `bytes`, which begin at a multiple of 8 in shared memory.
   */
  decode(key: string, bytes: Uint8Array): Value | null;
  /** What the value takes in memory. */
  byteLengthOf(value: Value): number;
}
