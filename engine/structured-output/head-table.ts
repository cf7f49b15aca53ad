/** Interns heads and rests: equal ones are created once. */
import type { ByteState, ByteStates } from "./byte-state.ts";
import { nodeKinds, recordOf, UNBOUNDED } from "./program.ts";
import type { Program } from "./program.ts";
import type { Head, Repetition, Rest } from "./reading.ts";

/** Mutable. Ids are never reused, even when everything is created again after `clear`. */
export class HeadTable {
  readonly #program: Program;
  readonly #states: ByteStates;
  readonly #byNode = new Map<number, Head>();
  readonly #byState = new Map<ByteState, Head>();
  readonly #repetitions = new Map<string, Repetition>();
  readonly #roundsAfter = new Map<Repetition, Repetition>();
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

  /** Number of rests kept. */
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
    for (const table of [this.#byNode, this.#byState, this.#repetitions, this.#roundsAfter, this.#rests, this.#clamped])
      table.clear();
  }

  #clampHead(head: Head, numBytes: number): Head {
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
}
