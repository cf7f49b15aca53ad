/** Writes automata as rules, one for each state and number of characters that makes a difference. */
import { unite } from "./code-point-set.ts";
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import type { CountBounds } from "./json-bounds.ts";
import type { PatternAutomaton } from "./pattern-automaton.ts";

/** Maximum number of rules of one automaton. This many take some tens of milliseconds. */
const MAX_RULES = 10_000;

/** A state after some characters: above the bounds, their number makes no difference. */
interface Place {
  readonly state: number;
  readonly numCharacters: number;
}

/**
 * The texts of an automaton with such lengths. Null if there are none, "too-large" if they take too many rules.
 *
 * @param rules Receives rules whose names begin with `prefix`.
 */
export function automatonLanguage(
  { states }: PatternAutomaton,
  { min, max }: CountBounds,
  prefix: string,
  rules: Map<string, Expression>,
): Expression | "too-large" | null {
  const mostCounted = max === Infinity ? min : max;
  const places: Place[] = [{ state: 0, numCharacters: 0 }];
  const indices = new Map([["0:0", 0]]);
  const nexts: (readonly number[])[] = [];
  // The list grows meanwhile.
  for (const { state, numCharacters } of places) {
    const count = Math.min(numCharacters + 1, mostCounted);
    const isFull = numCharacters >= max;
    const next = (isFull ? [] : states[state]!.next).map(({ target }) => {
      const key = `${target}:${count}`;
      let index = indices.get(key);
      if (index === undefined) indices.set(key, (index = places.push({ state: target, numCharacters: count }) - 1));
      return index;
    });
    if (places.length > MAX_RULES) return "too-large";
    nexts.push(next);
  }
  const isEnd = (index: number): boolean => states[places[index]!.state]!.canEnd && places[index]!.numCharacters >= min;
  const ending = endingPlaces(nexts, isEnd);
  if (!ending.has(0)) return null;
  for (const index of ending) {
    const { next } = states[places[index]!.state]!;
    const options = nexts[index]!.flatMap((target, order): Expression[] => {
      if (!ending.has(target)) return [];
      const character: Expression = { kind: "set", set: unite(next[order]!.set) };
      return [sequenceOf([character, { kind: "rule", name: `${prefix} ${target}` }])];
    });
    const [only] = nexts[index]!;
    const isLoop = nexts[index]!.length === 1 && only === index;
    const loop: Expression = {
      kind: "repetition",
      part: { kind: "set", set: unite(next[0]?.set ?? []) },
      min: 0,
      max: Infinity,
    };
    rules.set(
      `${prefix} ${index}`,
      isLoop && isEnd(index) ? loop : alternativesOf([...options, ...(isEnd(index) ? [literalOf("")] : [])]),
    );
  }
  return { kind: "rule", name: `${prefix} 0` };
}

/** The places from which an end can be reached. */
function endingPlaces(nexts: readonly (readonly number[])[], isEnd: (index: number) => boolean): ReadonlySet<number> {
  const befores: number[][] = nexts.map(() => []);
  for (const [index, next] of nexts.entries()) for (const target of next) befores[target]!.push(index);
  const pending = [...nexts.keys()].filter(isEnd);
  const ending = new Set(pending);
  for (let index = pending.pop(); index !== undefined; index = pending.pop()) {
    for (const before of befores[index]!) {
      if (ending.has(before)) continue;
      ending.add(before);
      pending.push(before);
    }
  }
  return ending;
}
