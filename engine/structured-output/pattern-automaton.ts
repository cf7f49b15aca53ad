/** Turns patterns with lookaheads into deterministic automata, whose states say what all conditions still ask for. */
import { invariant } from "../contract/errors.ts";
import { anyCharacter, textEnd } from "./assertion-pattern.ts";
import type { PatternPart } from "./assertion-pattern.ts";
import { wordCharacters } from "./bracket-expression.ts";
import { characterClasses } from "./character-classes.ts";
import type { CodePointSet } from "./code-point-set.ts";
import { TooMuchWork } from "./work-meter.ts";
import type { WorkMeter } from "./work-meter.ts";

export interface PatternAutomaton {
  /** State 0 is the first. */
  readonly states: readonly AutomatonState[];
}

export interface AutomatonState {
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  /** The sets of different targets have no character in common. */
  readonly next: readonly { readonly set: CodePointSet; readonly target: number }[];
}

const MAX_STATES = 2000;

/** What follows in the pattern. Equal ones are one object; null is the end of the pattern, behind which anything may follow. */
interface Follow {
  readonly id: number;
  readonly part: PatternPart;
  readonly behind: Follow | null;
}

interface Lookahead {
  readonly state: State;
  readonly isNegated: boolean;
}

/** One way to match: what follows, and the lookaheads that are not decided yet, by key. */
interface Way {
  readonly follow: Follow | null;
  readonly lookaheads: ReadonlyMap<string, Lookahead>;
}

/** Equal states are one object. */
interface State {
  readonly id: number;
  /** None: nothing matches. */
  readonly ways: readonly Way[];
  /** Whether everything matches that follows. */
  readonly isMatched: boolean;
  /** Whether it matches the empty rest of a text. */
  readonly canEnd: boolean;
}

type Previous = "start" | "word" | "other";

/**
 * The texts that match as a whole, or in which the pattern matches somewhere. Null if that takes too many states, or more
 * work than the meter allows, in visits of ways. The states are sets of partial derivatives (Antimirov, 1996), each with
 * the derivatives of its lookaheads.
 */
export function automatonOf(pattern: PatternPart, isWhole: boolean, meter: WorkMeter): PatternAutomaton | null {
  try {
    return new AutomatonWriter(pattern, isWhole, meter).write();
  } catch (error) {
    if (error instanceof TooMuchWork) return null;
    throw error;
  }
}

const wordSet: PatternPart = { kind: "set", set: wordCharacters };

class AutomatonWriter {
  readonly #pattern: PatternPart;
  readonly #meter: WorkMeter;
  readonly #classes: readonly CodePointSet[];
  /** By set: the classes in it. */
  readonly #members = new Map<CodePointSet, ReadonlySet<number>>();
  readonly #follows = new Map<string, Follow>();
  readonly #parts = new Map<PatternPart, number>();
  readonly #repetitions = new Map<string, PatternPart>();
  readonly #states = new Map<string, State>();
  readonly #steps = new Map<string, State>();

  constructor(pattern: PatternPart, isWhole: boolean, meter: WorkMeter) {
    this.#meter = meter;
    const anything: PatternPart = { kind: "repetition", part: anyCharacter, min: 0, max: Infinity };
    this.#pattern = { kind: "sequence", parts: isWhole ? [{ kind: "start" }, pattern, textEnd] : [anything, pattern] };
    const sets = setsOf(this.#pattern);
    this.#classes = characterClasses([...sets, wordCharacters]);
    for (const set of [...sets, wordCharacters]) {
      const members = this.#classes.flatMap((each, index) => (includes(set, each[0]![0]) ? [index] : []));
      this.#members.set(set, new Set(members));
    }
  }

  write(): PatternAutomaton | null {
    const found = [this.#stateOf(this.#waysAt(this.#follow(this.#pattern, null), "start"))];
    const indices = new Map(found.map((state, index) => [state, index]));
    const states: AutomatonState[] = [];
    // The list grows meanwhile.
    for (const state of found) {
      const classesByTarget = new Map<number, CodePointSet[]>();
      for (const [index, set] of this.#classes.entries()) {
        const next = this.#step(state, index);
        if (next.ways.length === 0) continue;
        let target = indices.get(next);
        if (target === undefined) {
          if (found.length === MAX_STATES) return null;
          indices.set(next, (target = found.push(next) - 1));
        }
        const sets = classesByTarget.get(target);
        if (sets === undefined) classesByTarget.set(target, [set]);
        else sets.push(set);
      }
      const next = Array.from(classesByTarget, ([target, sets]) => ({ target, set: sets.flat() }));
      states.push({ canEnd: state.canEnd, next });
    }
    return { states };
  }

  #step(state: State, characterClass: number): State {
    if (state.isMatched) return state;
    const key = `${state.id}:${characterClass}`;
    let next = this.#steps.get(key);
    if (next === undefined) this.#steps.set(key, (next = this.#stateOf(this.#stepWays(state, characterClass))));
    return next;
  }

  #stepWays(state: State, characterClass: number): readonly Way[] {
    const previous = this.#members.get(wordCharacters)!.has(characterClass) ? "word" : "other";
    return state.ways.flatMap(({ follow, lookaheads }) => {
      this.#meter.spend(1 + lookaheads.size);
      if (follow !== null && !this.#members.get(setOf(follow.part))!.has(characterClass)) return [];
      const left = new Map<string, Lookahead>();
      for (const { state: before, isNegated } of lookaheads.values())
        if (!addLookahead(left, this.#step(before, characterClass), isNegated)) return [];
      return this.#waysAt(follow === null ? null : follow.behind, previous, left);
    });
  }

  /** The ways whose next part is a set, or that have matched. */
  #waysAt(start: Follow | null, previous: Previous, lookaheads: Way["lookaheads"] = new Map()): readonly Way[] {
    const ways: Way[] = [];
    const seen = new Set<string>();
    const pending: Way[] = [{ follow: start, lookaheads }];
    const add = (parts: readonly PatternPart[], behind: Follow | null, beside: Way["lookaheads"]): void => {
      pending.push({ follow: parts.reduceRight((rest, part) => this.#follow(part, rest), behind), lookaheads: beside });
    };
    for (let way = pending.pop(); way !== undefined; way = pending.pop()) {
      this.#meter.spend(1 + way.lookaheads.size);
      const key = keyOf(way);
      if (seen.size === seen.add(key).size) continue;
      const { follow } = way;
      if (follow === null || follow.part.kind === "set") {
        ways.push(way);
        continue;
      }
      const { part, behind } = follow;
      switch (part.kind) {
        case "sequence":
          add(part.parts, behind, way.lookaheads);
          break;
        case "alternatives":
          for (const option of part.options) add([option], behind, way.lookaheads);
          break;
        case "repetition": {
          const { min, max } = part;
          if (min === 0) add([], behind, way.lookaheads);
          if (max > 0)
            add([part.part, this.#repetition(part.part, Math.max(0, min - 1), max - 1)], behind, way.lookaheads);
          break;
        }
        case "start":
          if (previous === "start") add([], behind, way.lookaheads);
          break;
        case "boundary": {
          const isNegated = (previous === "word") !== part.isNegated;
          add([{ kind: "lookahead", part: wordSet, isNegated }], behind, way.lookaheads);
          break;
        }
        case "lookahead": {
          const state = this.#stateOf(this.#waysAt(this.#follow(part.part, null), previous));
          const beside = new Map(way.lookaheads);
          if (addLookahead(beside, state, part.isNegated)) add([], behind, beside);
          break;
        }
        default:
          part satisfies never;
      }
    }
    return ways;
  }

  #follow(part: PatternPart, behind: Follow | null): Follow {
    let number = this.#parts.get(part);
    if (number === undefined) this.#parts.set(part, (number = this.#parts.size));
    const key = `${number}:${behind?.id ?? -1}`;
    let follow = this.#follows.get(key);
    if (follow === undefined) this.#follows.set(key, (follow = { id: this.#follows.size, part, behind }));
    return follow;
  }

  #repetition(part: PatternPart, min: number, max: number): PatternPart {
    let number = this.#parts.get(part);
    if (number === undefined) this.#parts.set(part, (number = this.#parts.size));
    const key = `${number}:${min}:${max}`;
    let repetition = this.#repetitions.get(key);
    if (repetition === undefined) this.#repetitions.set(key, (repetition = { kind: "repetition", part, min, max }));
    return repetition;
  }

  /** Without ways that ask for more than another one. */
  #stateOf(ways: readonly Way[]): State {
    const byKey = new Map(ways.map((way) => [keyOf(way), way]));
    this.#meter.spend(byKey.size * byKey.size);
    const different = [...byKey.values()];
    const needed = different.filter(
      (way) => !different.some((other) => other.follow === way.follow && asksForLess(other, way)),
    );
    const isMatched = needed.some((way) => way.follow === null && way.lookaheads.size === 0);
    const kept = isMatched ? needed.filter((way) => way.follow === null && way.lookaheads.size === 0) : needed;
    const key = kept.map(keyOf).sort().join(";");
    let state = this.#states.get(key);
    if (state === undefined) {
      const canEnd = kept.some(
        (way) => way.follow === null && way.lookaheads.values().every((each) => each.state.canEnd !== each.isNegated),
      );
      state = { id: this.#states.size, ways: kept, isMatched, canEnd };
      this.#states.set(key, state);
    }
    return state;
  }
}

/** False if the lookahead has failed. One that has succeeded is left out. */
function addLookahead(lookaheads: Map<string, Lookahead>, state: State, isNegated: boolean): boolean {
  if (state.isMatched) return !isNegated;
  if (state.ways.length === 0) return isNegated;
  lookaheads.set(`${isNegated ? "!" : "="}${state.id}`, { state, isNegated });
  return true;
}

function asksForLess({ lookaheads }: Way, other: Way): boolean {
  if (lookaheads.size >= other.lookaheads.size) return false;
  for (const key of lookaheads.keys()) if (!other.lookaheads.has(key)) return false;
  return true;
}

function keyOf({ follow, lookaheads }: Way): string {
  return `${follow?.id ?? -1}${[...lookaheads.keys()].sort().join("")}`;
}

function setOf(part: PatternPart): CodePointSet {
  invariant(part.kind === "set", `A way continues with a part of the kind ${part.kind}.`);
  return part.set;
}

function setsOf(pattern: PatternPart): readonly CodePointSet[] {
  const sets = new Set<CodePointSet>();
  const visit = (part: PatternPart): void => {
    if (part.kind === "set") sets.add(part.set);
    else if (part.kind === "sequence") part.parts.forEach(visit);
    else if (part.kind === "alternatives") part.options.forEach(visit);
    else if (part.kind === "repetition" || part.kind === "lookahead") visit(part.part);
  };
  visit(pattern);
  return [...sets];
}

function includes(set: CodePointSet, code: number): boolean {
  return set.some(([first, last]) => first <= code && code <= last);
}
