/** Interns calls of rules: equal calls are created once. */
import type { Call, Reading, Rest } from "./reading.ts";
import type { WorkMeter } from "./work-meter.ts";

/** A call that starts at the current position, to which more returns can be added. Mutable. */
export interface OpenCall {
  readonly rule: number;
  /** By the call that continues after it. */
  readonly returns: Map<Call | OpenCall | null, Set<Rest | null>>;
  /** Whether the rule matches the empty text. */
  isEmpty: boolean;
}

export function isOpen(call: Call | OpenCall | null): call is OpenCall {
  return call !== null && "isEmpty" in call;
}

/** Units of work per return, whose key has to be made and sorted. */
const RETURN_UNITS = 64;

/** Mutable. */
export class CallTable {
  readonly #calls = new Map<string, Call>();
  /** Calls that are each other's callers. */
  readonly #groups = new Map<string, ReadonlyMap<number, Call>>();
  #numCreated = 0;
  #numReturns = 0;

  /** Number of returns of the calls that are kept. */
  get size(): number {
    return this.#numReturns;
  }

  /**
   * Returns the final calls that replace the open calls of one position. Callers come before the calls they make. Calls
   * that are directly or indirectly their own callers remain, and are compared as a group.
   */
  close(open: ReadonlyMap<number, OpenCall>, meter: WorkMeter): ReadonlyMap<OpenCall, Call> {
    const lasting = new Map<OpenCall, Call>();
    const called = new Map<OpenCall, OpenCall[]>();
    const numCallers = new Map<OpenCall, number>();
    for (const call of open.values()) {
      let count = 0;
      for (const [caller, rests] of call.returns) {
        meter.spend(rests.size * RETURN_UNITS);
        if (!isOpen(caller)) continue;
        count++;
        const calls = called.get(caller);
        if (calls === undefined) called.set(caller, [call]);
        else calls.push(call);
      }
      numCallers.set(call, count);
    }
    const ready = Array.from(numCallers).flatMap(([call, count]) => (count === 0 ? [call] : []));
    for (let call = ready.pop(); call !== undefined; call = ready.pop()) {
      lasting.set(call, this.#single(call, lasting, meter));
      for (const next of called.get(call) ?? []) {
        const count = numCallers.get(next)! - 1;
        numCallers.set(next, count);
        if (count === 0) ready.push(next);
      }
    }
    if (lasting.size < open.size) {
      const group = [...open.values()]
        .filter((call) => !lasting.has(call))
        .sort((left, right) => left.rule - right.rule);
      this.#closeGroup(group, lasting, meter);
    }
    return lasting;
  }

  clear(): void {
    this.#calls.clear();
    this.#groups.clear();
    this.#numReturns = 0;
  }

  #single(call: OpenCall, lasting: ReadonlyMap<OpenCall, Call>, meter: WorkMeter): Call {
    const { returns, covers } = returnsOf(call, lasting, meter);
    const key = `${call.rule}=${[...returns.keys()].sort().join()}`;
    let known = this.#calls.get(key);
    if (known === undefined) {
      known = { id: ++this.#numCreated, rule: call.rule, returns: [...returns.values()] as Reading[], covers };
      this.#calls.set(key, known);
      this.#numReturns += returns.size;
    }
    return known;
  }

  #closeGroup(group: readonly OpenCall[], lasting: Map<OpenCall, Call>, meter: WorkMeter): void {
    const members = group.map((call) => returnsOf(call, lasting, meter));
    const key = members
      .map(({ returns }, index) => `${group[index]!.rule}=${[...returns.keys()].sort().join()}`)
      .join("|");
    let known = this.#groups.get(key);
    if (known === undefined) {
      const created = new Map<number, Call & { returns: Reading[] }>();
      for (const [index, { rule }] of group.entries()) {
        created.set(rule, { id: ++this.#numCreated, rule, returns: [], covers: members[index]!.covers });
      }
      for (const [index, { rule }] of group.entries()) {
        created.get(rule)!.returns = Array.from(members[index]!.returns.values(), ({ rest, call }) => ({
          rest,
          call: isOpen(call) ? created.get(call.rule)! : call,
        }));
      }
      this.#groups.set(key, (known = created));
      for (const { returns } of members) this.#numReturns += returns.size;
    }
    for (const call of group) lasting.set(call, known.get(call.rule)!);
  }
}

interface OpenReturn {
  readonly rest: Rest | null;
  readonly call: Call | OpenCall | null;
}

interface ClosedReturns {
  /** By their distinguishing key. */
  readonly returns: ReadonlyMap<string, OpenReturn>;
  readonly covers: ReadonlySet<Call>;
}

/**
 * Replaces a return to the end of a known caller by that caller's own returns, so that tail calls do not accumulate as
 * a text grows. Late callers come first, because they often cover the earlier ones.
 */
function returnsOf({ rule, returns }: OpenCall, lasting: ReadonlyMap<OpenCall, Call>, meter: WorkMeter): ClosedReturns {
  const found = new Map<string, OpenReturn>();
  const ended: Call[] = [];
  const add = (rest: Rest | null, call: Call | OpenCall | null): void => {
    const caller = isOpen(call) ? `r${call.rule}` : (call?.id ?? 0);
    found.set(`${rest?.id ?? 0}:${caller}`, { rest, call });
  };
  for (const [caller, rests] of returns) {
    const call = isOpen(caller) ? (lasting.get(caller) ?? caller) : caller;
    for (const rest of rests) {
      if (rest !== null || call === null) add(rest, call);
      else if (!isOpen(call)) ended.push(call);
      else if (call.rule !== rule) add(rest, call);
    }
  }
  const covers = new Set<Call>();
  for (const call of ended.sort((left, right) => right.id - left.id)) {
    if (covers.has(call)) continue;
    meter.spend(call.returns.length * RETURN_UNITS + call.covers.size);
    covers.add(call);
    for (const covered of call.covers) covers.add(covered);
    for (const back of call.returns) add(back.rest, back.call);
  }
  return { returns: found, covers };
}
