/** The parts of a position in a text: the expressions that are still to come, and the calls that they are in. */
import type { ByteState } from "./byte-state.ts";

/** The next expression. Equal ones are one object. */
export type Head =
  /** A character or word, begun or not. */
  | { readonly kind: "bytes"; readonly id: number; readonly state: ByteState }
  /** Of two nodes of the program. */
  | { readonly kind: "sequence"; readonly id: number; readonly first: number; readonly second: number }
  /** Of the nodes that the program's `options` list. */
  | { readonly kind: "alternatives"; readonly id: number; readonly first: number; readonly end: number }
  | Repetition
  | { readonly kind: "rule"; readonly id: number; readonly rule: number }
  | { readonly kind: "empty"; readonly id: number };

/** Rounds that are still to come. */
export interface Repetition {
  readonly kind: "repetition";
  readonly id: number;
  readonly part: Head;
  readonly min: number;
  /** `UNBOUNDED` for no end. */
  readonly max: number;
}

/** The rest of a rule: the next expression and those behind it. Equal ones are one object. */
export interface Rest {
  readonly id: number;
  readonly head: Head;
  readonly behind: Rest | null;
}

/**
 * Calls of a rule that go on alike when it has ended: `returns` tells how. There is one object for equal ones, wherever
 * in the text they began, so that a text that goes in circles comes to where it has been. Left recursion makes a call
 * its own caller.
 */
export interface Call {
  readonly id: number;
  readonly rule: number;
  readonly returns: readonly Reading[];
  /** Calls all of whose returns are among those of this one. */
  readonly covers: ReadonlySet<Call>;
}

/** One way to read the text so far: what is to come of a rule, null for nothing, and its call, null in the first. */
export interface Reading {
  readonly rest: Rest | null;
  readonly call: Call | null;
}

/** A reading that waits for a byte. */
export interface WaitingReading extends Reading {
  readonly rest: Rest & { readonly head: Extract<Head, { readonly kind: "bytes" }> };
}

/** A place in a text. Equal ones are one object as long as the recognizer keeps it. */
export interface Position {
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  readonly readings: readonly WaitingReading[];
  /** By byte: null where the text does not go on, undefined where that was not asked yet. The recognizer's own. */
  next: (Position | null | undefined)[] | null;
}
