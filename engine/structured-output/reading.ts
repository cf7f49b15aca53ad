/** The parts of a position in a text: the expressions that follow, and the calls that contain them. */
import type { ByteState } from "./byte-state.ts";

/** The next expression. Equal heads are one object. */
export type Head =
  /** A character or word, possibly started. */
  | { readonly kind: "bytes"; readonly id: number; readonly state: ByteState }
  /** A sequence of two nodes of the program. */
  | { readonly kind: "sequence"; readonly id: number; readonly first: number; readonly second: number }
  /** Alternatives: the nodes that the program's `options` list. */
  | { readonly kind: "alternatives"; readonly id: number; readonly first: number; readonly end: number }
  | Repetition
  | Limited
  | { readonly kind: "rule"; readonly id: number; readonly rule: number }
  | { readonly kind: "empty"; readonly id: number };

/** The remaining rounds of a repetition. */
export interface Repetition {
  readonly kind: "repetition";
  readonly id: number;
  readonly part: Head;
  readonly min: number;
  /** `UNBOUNDED` for no limit. */
  readonly max: number;
}

/** Texts of `inner` with at most `max` characters; it has such a text. */
export interface Limited {
  readonly kind: "limited";
  readonly id: number;
  readonly inner: Rest | null;
  readonly max: number;
  /** Characters with which every text of `inner` that has begun can end. */
  readonly reserve: number;
}

/** The rest of a rule: the next expression and those after it. Equal rests are one object. */
export interface Rest {
  readonly id: number;
  readonly head: Head;
  readonly behind: Rest | null;
}

/**
 * Calls of a rule that continue in the same way after it: `returns` says how. Equal calls are one object, wherever in
 * the text they started, so that a cyclic text returns to known positions. Left recursion makes a call its own caller.
 */
export interface Call {
  readonly id: number;
  readonly rule: number;
  readonly returns: readonly Reading[];
  /** Calls whose returns are all among this one's. */
  readonly covers: ReadonlySet<Call>;
}

/** One way to read the text so far: the rest of a rule (null for nothing) and its call (null for the first). */
export interface Reading {
  readonly rest: Rest | null;
  readonly call: Call | null;
}

/** A reading that waits for a byte. */
export interface WaitingReading extends Reading {
  readonly rest: Rest & { readonly head: Extract<Head, { readonly kind: "bytes" }> };
}

/** A position in a text. Equal positions are one object while the recognizer keeps them. */
export interface Position {
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  readonly readings: readonly WaitingReading[];
  /** By byte: null if the text cannot continue, undefined if not computed yet. For the recognizer only. */
  next: (Position | null | undefined)[] | null;
}
