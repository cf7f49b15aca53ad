/** Mends the one thing that XGrammar's build does wrong to every kind of grammar. */
import { invariant } from "../contract/errors.ts";

/** `i32.const 1200001`: what the size of an automaton in bytes is compared with, twelve bytes to a state. */
const mergingLimit = [0x41, 0x81, 0x9f, 0xc9, 0x00];
/** `i32.const 0`, spelled as long. */
const nothing = [0x41, 0x80, 0x80, 0x80, 0x00];

/**
 * XGrammar's code without the pass over a rule's automaton that merges states which are reached alike and states that
 * go on alike. Version 0.1.27 does both at once, so that a state of the one kind takes in one of the other, and takes
 * the start for a state that is only reached by edges: `1000|993|986|…`, seven apart, lets 1007 through, and
 * `[a-z]* [a-z] "c" "d"` lets "cd" through. mlc-ai/xgrammar mended this in its pull requests 632 and 911, after the
 * last version on npm. The pass leaves automata of more than 100,000 states alone; here that is all of them. What
 * follows it makes automata small as well, and rightly.
 *
 * Throws where the code is not that of the version.
 */
export function withoutStateMerging(code: Uint8Array): Uint8Array {
  const bytes = Buffer.from(code);
  const limit = Buffer.from(mergingLimit);
  const start = bytes.indexOf(limit);
  invariant(
    start !== -1 && bytes.indexOf(limit, start + 1) === -1,
    "the WebAssembly code of XGrammar is not that of version 0.1.27, whose pass over automata is switched off",
  );
  bytes.set(nothing, start);
  return bytes;
}
