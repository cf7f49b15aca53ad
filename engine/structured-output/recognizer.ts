/** Recognizes the texts of a language byte by byte. */
import { ByteStates } from "./byte-state.ts";
import { CallTable, isOpen } from "./call-table.ts";
import type { OpenCall } from "./call-table.ts";
import { HeadTable, READING_UNITS } from "./head-table.ts";
import type { Program } from "./program.ts";
import type { Call, Position, Reading, Rest, WaitingReading } from "./reading.ts";
import type { WorkMeter } from "./work-meter.ts";

/** A reading of a position whose calls can still get more returns. */
interface OpenReading {
  readonly rest: Rest | null;
  readonly call: Call | OpenCall | null;
}

/** Above this number, all positions are dropped and created again when a text reaches them. Each takes up to 3 KB. */
const MAX_POSITIONS = 4096;
/** Limit for readings, rests, returns of calls and byte states, of about 100 bytes each. */
const MAX_PARTS = 262_144;

/**
 * Follows all ways to read a text at once, like Earley's algorithm. Calls of rules form a graph in which all calls of
 * one rule at one place are one node, so that left recursion and ambiguity terminate. Repetitions are counted while
 * reading and never written out. Positions are stored with their successors, like the states of a lazily built
 * automaton: a text in known positions costs one look-up per byte.
 *
 * Mutable. Methods throw TooMuchWork when the meter allows no more work.
 */
export class Recognizer {
  readonly #program: Program;
  readonly #meter: WorkMeter;
  readonly #states: ByteStates;
  readonly #heads: HeadTable;
  readonly #calls = new CallTable();
  /** By the readings from which they were computed, and by their own readings. */
  readonly #settled = new Map<string, Position>();
  readonly #positions = new Map<string, Position>();
  /** Positions that store a successor. */
  readonly #linked: Position[] = [];
  #numReadings = 0;
  #numResets = 0;

  constructor(program: Program, meter: WorkMeter) {
    this.#program = program;
    this.#meter = meter;
    this.#states = new ByteStates(program);
    this.#heads = new HeadTable(program, this.#states);
  }

  /** How often all positions were dropped. Equal positions and rests are different objects after that. */
  get numResets(): number {
    return this.#numResets;
  }

  /** The position before the first byte. */
  start(): Position {
    return this.positionAt([{ rest: this.#heads.rest(this.#heads.ofNode(this.#program.root), null), call: null }]);
  }

  /** Null if no text of the language continues with the byte. */
  advance(position: Position, byte: number): Position | null {
    const known = position.next?.[byte];
    if (known !== undefined) return known;
    this.#forgetWhenFull();
    const moved: Reading[] = [];
    for (const { rest, call } of position.readings) {
      const state = rest.head.state.next(byte);
      if (state === null) continue;
      moved.push({
        rest: state.goesOn ? this.#heads.rest(this.#heads.ofState(state), rest.behind) : rest.behind,
        call,
      });
    }
    this.#meter.spend(4 + position.readings.length * 4);
    const next = moved.length === 0 ? null : this.positionAt(moved);
    if (position.next === null) {
      position.next = Array.from<Position | null | undefined>({ length: 256 });
      this.#linked.push(position);
    }
    position.next[byte] = next;
    return next;
  }

  /** The position that these readings reach without a byte. */
  positionAt(readings: readonly Reading[]): Position {
    const key = keyOf(readings);
    this.#meter.spend(readings.length * READING_UNITS);
    let position = this.#settled.get(key);
    if (position === undefined) {
      this.#settled.set(key, (position = this.#settle(readings)));
      this.#numReadings += readings.length;
    }
    return position;
  }

  /** The rest with counts that texts of this many bytes cannot distinguish from its own. */
  clamp(rest: Rest, numBytes: number): Rest {
    return this.#heads.clampRest(rest, numBytes);
  }

  #settle(begun: readonly Reading[]): Position {
    const seen = new Map<Call | OpenCall | null, Set<Rest | null>>();
    const open = new Map<number, OpenCall>();
    /** Calls whose returns were added together with another call's. */
    const covered = new Set<Call>();
    const pending: OpenReading[] = [];
    const waiting: OpenReading[] = [];
    const heads = this.#heads;
    let canEnd = false;
    const add = (rest: Rest | null, call: Call | OpenCall | null): void => {
      let rests = seen.get(call);
      if (rests === undefined) seen.set(call, (rests = new Set()));
      if (rests.has(rest)) return;
      rests.add(rest);
      this.#meter.spend(READING_UNITS);
      pending.push({ rest, call });
    };
    for (const { rest, call } of begun) add(rest, call);
    for (let reading = pending.pop(); reading !== undefined; reading = pending.pop()) {
      const { rest, call } = reading;
      if (rest === null) {
        if (call === null) canEnd = true;
        else if (isOpen(call)) {
          call.isEmpty = true;
          this.#meter.spend(call.returns.size);
          for (const [caller, rests] of call.returns) for (const back of rests) add(back, caller);
        } else if (!covered.has(call)) {
          this.#meter.spend(call.returns.length + call.covers.size);
          for (const other of call.covers) covered.add(other);
          for (const back of call.returns) add(back.rest, back.call);
        }
        continue;
      }
      const { head, behind } = rest;
      switch (head.kind) {
        case "empty":
          add(behind, call);
          break;
        case "bytes":
          if (head.state.canEnd) add(behind, call);
          if (head.state.goesOn) waiting.push(reading);
          break;
        case "sequence":
          add(heads.rest(heads.ofNode(head.first), heads.rest(heads.ofNode(head.second), behind)), call);
          break;
        case "alternatives":
          for (let index = head.first; index < head.end; index++)
            add(heads.rest(heads.ofNode(this.#program.options[index]!), behind), call);
          break;
        case "repetition":
          if (head.min === 0) add(behind, call);
          if (head.max > 0) add(heads.rest(head.part, heads.rest(heads.roundAfter(head), behind)), call);
          break;
        case "limited": {
          const { canEnd: isWhole, characters } = heads.nextCharacters(head.inner, this.#meter);
          if (isWhole) add(behind, call);
          if (head.max === 0) break;
          for (const character of characters) {
            const after = heads.limitedAfter(head, character.behind);
            if (after !== null) add(heads.rest(character.head, heads.rest(after, behind)), call);
          }
          break;
        }
        case "rule": {
          let begunCall = open.get(head.rule);
          if (begunCall === undefined) {
            open.set(head.rule, (begunCall = { rule: head.rule, returns: new Map(), isEmpty: false }));
            add(heads.rest(heads.ofNode(this.#program.rules[head.rule]!), null), begunCall);
          }
          const known = begunCall.returns.get(call);
          if (known === undefined) begunCall.returns.set(call, new Set([behind]));
          else known.add(behind);
          if (begunCall.isEmpty) add(behind, call);
          break;
        }
        default:
          head satisfies never;
      }
    }
    return this.#keep(waiting, open, canEnd);
  }

  /** The position of these readings, with open calls replaced by final ones. */
  #keep(waiting: readonly OpenReading[], open: ReadonlyMap<number, OpenCall>, canEnd: boolean): Position {
    const lasting = this.#calls.close(open, this.#meter);
    this.#meter.spend(waiting.length * READING_UNITS);
    const readings = waiting.map(({ rest, call }) => ({
      rest,
      call: isOpen(call) ? lasting.get(call)! : call,
    })) as WaitingReading[];
    const key = `${canEnd ? "." : ""}${keyOf(readings)}`;
    let position = this.#positions.get(key);
    if (position === undefined) {
      const different = new Map(readings.map((reading) => [keyOf([reading]), reading]));
      position = { canEnd, readings: [...different.values()], next: null };
      this.#positions.set(key, position);
      this.#numReadings += position.readings.length;
    }
    return position;
  }

  /** Positions that callers still hold stay valid. */
  #forgetWhenFull(): void {
    const numParts = this.#numReadings + this.#heads.size + this.#calls.size + this.#states.size;
    if (this.#positions.size < MAX_POSITIONS && this.#settled.size < 4 * MAX_POSITIONS && numParts < MAX_PARTS) return;
    for (const position of this.#linked) position.next = null;
    this.#linked.length = 0;
    this.#positions.clear();
    this.#settled.clear();
    this.#calls.clear();
    this.#heads.clear();
    this.#states.clear();
    this.#numReadings = 0;
    this.#numResets++;
  }
}

function keyOf(readings: readonly Reading[]): string {
  if (readings.length === 1) return `${readings[0]!.rest?.id ?? 0}:${readings[0]!.call?.id ?? 0}`;
  const keys = readings.map(({ rest, call }) => `${rest?.id ?? 0}:${call?.id ?? 0}`);
  return [...new Set(keys)].sort().join();
}
