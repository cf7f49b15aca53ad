/** Interns heads and rests: equal ones are created once. */
import { invariant } from "../contract/errors.ts";
import type { ByteState, ByteStates } from "./byte-state.ts";
import { lengthsToEnd } from "./lengths-to-end.ts";
import type { LengthsToEnd } from "./lengths-to-end.ts";
import { nodeKinds, recordOf, UNBOUNDED } from "./program.ts";
import type { Program } from "./program.ts";
import type { Head, Limited, Repetition, Rest } from "./reading.ts";
import type { WorkMeter } from "./work-meter.ts";

/** Units of work (see WorkMeter) per visit of a reading or rest: about a quarter of a microsecond. */
export const READING_UNITS = 32;

/** A character that can come next, and the rest behind it. */
interface CharacterRest {
  readonly head: Extract<Head, { readonly kind: "bytes" }>;
  readonly behind: Rest | null;
}

interface NextCharacters {
  /** Whether the text can end here. */
  readonly canEnd: boolean;
  readonly characters: readonly CharacterRest[];
}

const endOnly: NextCharacters = { canEnd: true, characters: [] };

/** Mutable. Ids are never reused, even when everything is created again after `clear`. */
export class HeadTable {
  readonly #program: Program;
  readonly #states: ByteStates;
  readonly #byNode = new Map<number, Head>();
  readonly #byState = new Map<ByteState, Head>();
  readonly #repetitions = new Map<string, Repetition>();
  readonly #roundsAfter = new Map<Repetition, Repetition>();
  readonly #limited = new Map<string, Limited>();
  /** By rest: the characters with which its text can end, and its next ones. */
  readonly #toEnd = new Map<Rest, number>();
  readonly #nextCharacters = new Map<Rest, NextCharacters>();
  /** Null until a limited part is read. */
  #lengths: LengthsToEnd | null = null;
  /** By the rest behind them and the id of their head. */
  readonly #rests = new Map<Rest | null, Map<number, Rest>>();
  #numRests = 0;
  readonly #clamped = new Map<number, Map<Rest, Rest>>();
  /** 0 means no head or no rest. */
  #numCreated = 0;

  constructor(program: Program, states: ByteStates) {
    this.#program = program;
    this.#states = states;
  }

  /** Number of rests kept, and of the characters that follow them. */
  get size(): number {
    return this.#numRests;
  }

  rest(head: Head, behind: Rest | null): Rest {
    let known = this.#rests.get(behind);
    if (known === undefined) this.#rests.set(behind, (known = new Map()));
    let rest = known.get(head.id);
    if (rest === undefined) {
      known.set(head.id, (rest = { id: ++this.#numCreated, head, behind }));
      this.#numRests++;
    }
    return rest;
  }

  ofState(state: ByteState): Head {
    let head = this.#byState.get(state);
    if (head === undefined) this.#byState.set(state, (head = { kind: "bytes", id: ++this.#numCreated, state }));
    return head;
  }

  ofNode(node: number): Head {
    let head = this.#byNode.get(node);
    if (head === undefined) this.#byNode.set(node, (head = this.#create(node)));
    return head;
  }

  /** The remainder of a repetition after one more round has started. */
  roundAfter(repetition: Repetition): Repetition {
    const { part, min, max } = repetition;
    if (min === 0 && max === UNBOUNDED) return repetition;
    let after = this.#roundsAfter.get(repetition);
    if (after === undefined) {
      after = this.#repetition(part, Math.max(0, min - 1), max === UNBOUNDED ? max : max - 1);
      this.#roundsAfter.set(repetition, after);
    }
    return after;
  }

  /** The limited part after one of its next characters, whose rest is given; null if it cannot end in time. */
  limitedAfter(limited: Limited, inner: Rest | null): Limited | null {
    if (this.#numToEnd(inner) >= limited.max) return null;
    return this.#limit(inner, limited.max - 1, limited.reserve);
  }

  /** Of a rest without rules. Throws TooMuchWork. */
  nextCharacters(rest: Rest | null, meter: WorkMeter): NextCharacters {
    if (rest === null) return endOnly;
    let next = this.#nextCharacters.get(rest);
    if (next === undefined) {
      this.#nextCharacters.set(rest, (next = this.#findNextCharacters(rest, meter)));
      this.#numRests += next.characters.length;
    }
    return next;
  }

  /**
   * Returns the rest with counts clamped to `numBytes`. Every round takes at least one byte or can be left out, so
   * texts of that many bytes continue in the same way, as far as they go.
   */
  clampRest(rest: Rest, numBytes: number): Rest {
    let known = this.#clamped.get(numBytes);
    if (known === undefined) this.#clamped.set(numBytes, (known = new Map()));
    const chain: Rest[] = [];
    let clamped: Rest | null = null;
    for (let next: Rest | null = rest; next !== null; next = next.behind) {
      const found = known.get(next);
      if (found !== undefined) {
        clamped = found;
        break;
      }
      chain.push(next);
    }
    for (let next = chain.pop(); next !== undefined; next = chain.pop()) {
      clamped = this.rest(this.#clampHead(next.head, numBytes), clamped);
      known.set(next, clamped);
    }
    return clamped!;
  }

  clear(): void {
    this.#numRests = 0;
    for (const table of [
      this.#byNode,
      this.#byState,
      this.#repetitions,
      this.#roundsAfter,
      this.#rests,
      this.#clamped,
      this.#limited,
      this.#toEnd,
      this.#nextCharacters,
    ])
      table.clear();
  }

  #clampHead(head: Head, numBytes: number): Head {
    if (head.kind === "limited") {
      // Its counts stay as they are: they determine how many characters are needed to end.
      return this.#limit(head.inner, Math.min(head.max, numBytes + head.reserve), head.reserve);
    }
    if (head.kind !== "repetition") return head;
    const min = Math.min(head.min, numBytes);
    const max = head.max === UNBOUNDED ? UNBOUNDED : Math.min(head.max, Math.max(min, numBytes));
    return this.#repetition(head.part, min, max);
  }

  #create(node: number): Head {
    const [kind, a, b, c] = recordOf(this.#program.nodes, node);
    switch (kind) {
      case nodeKinds.set:
      case nodeKinds.words:
        return this.ofState(this.#states.startOf(node));
      case nodeKinds.sequence:
        return { kind: "sequence", id: ++this.#numCreated, first: a, second: b };
      case nodeKinds.alternatives:
        return { kind: "alternatives", id: ++this.#numCreated, first: a, end: b };
      case nodeKinds.repetition:
        return this.#repetition(this.ofNode(a), b, c);
      case nodeKinds.limited:
        return this.#limit(this.rest(this.ofNode(a), null), b, this.#lengthsToEnd().reserve[a]!);
      case nodeKinds.rule:
        return { kind: "rule", id: ++this.#numCreated, rule: a };
      default:
        return { kind: "empty", id: ++this.#numCreated };
    }
  }

  #repetition(part: Head, min: number, max: number): Repetition {
    const key = `${part.id}:${min}:${max}`;
    let repetition = this.#repetitions.get(key);
    if (repetition === undefined) {
      this.#repetitions.set(key, (repetition = { kind: "repetition", id: ++this.#numCreated, part, min, max }));
    }
    return repetition;
  }

  #limit(inner: Rest | null, max: number, reserve: number): Limited {
    const key = `${inner?.id ?? 0}:${max}:${reserve}`;
    let limited = this.#limited.get(key);
    if (limited === undefined) {
      this.#limited.set(key, (limited = { kind: "limited", id: ++this.#numCreated, inner, max, reserve }));
    }
    return limited;
  }

  #lengthsToEnd(): LengthsToEnd {
    return (this.#lengths ??= lengthsToEnd(this.#program));
  }

  /** The fewest characters with which the text of the rest can end. */
  #numToEnd(rest: Rest | null): number {
    const chain: Rest[] = [];
    let next = rest;
    for (; next !== null && !this.#toEnd.has(next); next = next.behind) chain.push(next);
    let count = next === null ? 0 : this.#toEnd.get(next)!;
    for (let before = chain.pop(); before !== undefined; before = chain.pop()) {
      count += this.#numToEndOf(before.head);
      this.#toEnd.set(before, count);
    }
    return count;
  }

  #numToEndOf(head: Head): number {
    const { fewest } = this.#lengthsToEnd();
    switch (head.kind) {
      case "bytes":
        return head.state.canEnd ? 0 : 1;
      case "sequence":
        return fewest[head.first]! + fewest[head.second]!;
      case "alternatives": {
        let count = Infinity;
        for (let index = head.first; index < head.end; index++)
          count = Math.min(count, fewest[this.#program.options[index]!]!);
        return count;
      }
      case "repetition":
        return head.min === 0 ? 0 : head.min * this.#numToEndOf(head.part);
      case "limited":
        return this.#numToEnd(head.inner);
      case "rule":
      case "empty":
        return 0;
      default:
        return head satisfies never;
    }
  }

  #findNextCharacters(start: Rest, meter: WorkMeter): NextCharacters {
    const characters: CharacterRest[] = [];
    const seen = new Set<Rest | null>();
    const pending: (Rest | null)[] = [start];
    for (let rest = pending.pop(); rest !== undefined; rest = pending.pop()) {
      if (seen.size === seen.add(rest).size || rest === null) continue;
      meter.spend(READING_UNITS);
      const { head, behind } = rest;
      switch (head.kind) {
        case "bytes":
          if (head.state.canEnd) pending.push(behind);
          if (head.state.goesOn) characters.push({ head, behind });
          break;
        case "sequence":
          pending.push(this.rest(this.ofNode(head.first), this.rest(this.ofNode(head.second), behind)));
          break;
        case "alternatives":
          for (let index = head.first; index < head.end; index++)
            pending.push(this.rest(this.ofNode(this.#program.options[index]!), behind));
          break;
        case "repetition":
          if (head.min === 0) pending.push(behind);
          if (head.max > 0) pending.push(this.rest(head.part, this.rest(this.roundAfter(head), behind)));
          break;
        case "empty":
          pending.push(behind);
          break;
        case "limited":
        case "rule":
          invariant(false, `A limited part has a part of the kind ${head.kind}.`);
          break;
        default:
          head satisfies never;
      }
    }
    return { canEnd: seen.has(null), characters };
  }
}
