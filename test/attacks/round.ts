/** Runs the attacks of one class and seed, finds those that violate an invariant, and minimises them. */
import * as fc from "fast-check";

import { faultsOf } from "./answer-faults.ts";
import type { Answer } from "./answer-reader.ts";
import type { Attack, AttackClass } from "./attack.ts";
import { COST, isAboutCost, isAboutSilence, isAboutSteps, kindOf, LOGGED } from "./problems.ts";
import type { Figures, Holdings } from "./service-under-attack.ts";
import { Target } from "./target.ts";

const DEFAULT_GROUP_SIZE = 16;
const DEFAULT_MAX_CPU_SECONDS = 1;
/** A token of the shipped checkpoint with all its overhead, several times over. */
const CPU_SECONDS_PER_TOKEN = 0.004;
/** For receiving, decoding and parsing a body. */
const CPU_SECONDS_PER_BYTE = 0.1 / 1024 ** 2;
const DEFAULT_SHRINK_MS = 20_000;
/** An attack that takes longer than this alone is reported without minimising. */
const MAX_SHRINKABLE_MS = 3000;

export interface RoundOptions {
  readonly seed: number;
  /** Cases of the seed: a number of them from the first, or the path of one. */
  readonly cases: { readonly count: number } | { readonly path: string };
  /** Skips attacks on other routes; with or without a method. */
  readonly route?: string | null;
  /** The round ends after this many faults. */
  readonly maxFaults?: number;
  /** Whether problems of these kinds have been minimised before. */
  readonly isKnown?: (problems: readonly string[]) => boolean;
  readonly shrinkMs?: number;
  /** Called after each group. */
  readonly onProgress?: (numCases: number) => void;
  /** The round ends early once it is aborted. */
  readonly signal?: AbortSignal;
}

/** A violated invariant. */
export interface Fault {
  readonly className: string;
  readonly seed: number;
  /** fast-check's path of the case, `417` or shrunk `417:0:2`; null if no single case causes it. */
  readonly path: string | null;
  /** The route filter of the round; the numbers of cases count only this route. */
  readonly routeFilter: string | null;
  readonly route: string;
  readonly label: string;
  /** The attack as text. */
  readonly shown: string;
  readonly problems: readonly string[];
}

export interface RoundReport {
  readonly numCases: number;
  /** Answers by status. */
  readonly statuses: ReadonlyMap<number, number>;
  /** For an ordinary request next to attacks, as a multiple of its steps alone. */
  readonly mostSteps: { readonly factor: number; readonly labels: readonly string[] };
  readonly faults: readonly Fault[];
}

export async function runRound(attackClass: AttackClass, options: RoundOptions): Promise<RoundReport> {
  await using target = await Target.prepare(attackClass);
  return await runRoundOn(target, attackClass, options);
}

/** The same on an existing service with the class's surroundings. */
export async function runRoundOn(
  target: Target,
  attackClass: AttackClass,
  options: RoundOptions,
): Promise<RoundReport> {
  return new Round(attackClass, target, options).run();
}

interface Case {
  readonly path: string;
  readonly attack: Attack;
}

interface GroupOutcome {
  /** By case: problems of its own answers. */
  readonly ownProblems: readonly (readonly string[])[];
  /** Problems that cannot be attributed to a case. */
  readonly sharedProblems: readonly string[];
}

/** Mutable. */
class Round {
  readonly #class: AttackClass;
  readonly #target: Target;
  readonly #options: RoundOptions;
  readonly #arbitrary: fc.Arbitrary<Attack>;
  readonly #statuses = new Map<number, number>();
  readonly #faults: Fault[] = [];
  /** At the end of the last group; null if unknown. */
  #figures: Figures | null = null;
  /** What the service held after the first quarter of the cases; null before, and after a restart. */
  #baseline: Holdings | null = null;
  #mostSteps: { factor: number; labels: readonly string[] } = { factor: 0, labels: [] };

  constructor(attackClass: AttackClass, target: Target, options: RoundOptions) {
    this.#class = attackClass;
    this.#target = target;
    this.#options = options;
    const { route = null } = options;
    const all = attackClass.attacks(target.surroundings);
    this.#arbitrary =
      route === null ? all : all.filter((attack) => attack.route === route || attack.route.endsWith(` ${route}`));
  }

  async run(): Promise<RoundReport> {
    const { cases, onProgress } = this.#options;
    const { groupSize = DEFAULT_GROUP_SIZE } = this.#class;
    const count = "count" in cases ? cases.count : 1;
    let numCases = 0;
    while (numCases < count && !this.#hasEnough && !this.#isAborted) {
      const group = this.#sample(
        "path" in cases ? cases.path : String(numCases),
        Math.min(groupSize, count - numCases),
      );
      await this.#attack(group);
      numCases += group.length;
      onProgress?.(numCases);
      // By then all modules are loaded and caches are full.
      if (this.#baseline === null && numCases >= count / 4) this.#baseline = await this.#settle();
    }
    if (this.#baseline !== null) await this.#settle();
    return { numCases, statuses: this.#statuses, mostSteps: this.#mostSteps, faults: this.#faults };
  }

  get #hasEnough(): boolean {
    return this.#faults.length >= (this.#options.maxFaults ?? Infinity);
  }

  get #isAborted(): boolean {
    return this.#options.signal?.aborted === true;
  }

  #sample(path: string, numRuns: number): Case[] {
    const attacks = fc.sample(this.#arbitrary, { seed: this.#options.seed, path, numRuns });
    return attacks.map((attack, index) => ({ path: path.includes(":") ? path : String(Number(path) + index), attack }));
  }

  /** Runs all at once. If there is a problem that cannot be attributed, runs each alone. */
  async #attack(group: readonly Case[]): Promise<void> {
    const { ownProblems, sharedProblems } = await this.#runGroup(group);
    const found = new Set<Case>();
    for (const [index, one] of group.entries()) {
      if (this.#hasEnough) return;
      const own = ownProblems[index]!.filter((problem) => !isAboutSilence(problem));
      if (own.length === 0) continue;
      found.add(one);
      await this.#report(one, own);
    }
    // A neighbour may be the reason for a missing answer.
    const unclear = [...ownProblems.flat().filter(isAboutSilence), ...sharedProblems];
    if (unclear.length === 0) return;
    for (const one of group.filter((candidate) => !found.has(candidate))) {
      if (this.#hasEnough) return;
      const problems = await this.#runAlone(one.attack);
      if (problems.length === 0) continue;
      found.add(one);
      await this.#report(one, problems);
    }
    if (found.size > 0) return;
    const certain = unclear.filter((problem) => !isAboutCost(problem) && !isAboutSteps(problem));
    const again = unclear.some(isAboutSteps) ? (await this.#runGroup(group)).sharedProblems.filter(isAboutSteps) : [];
    if (certain.length + again.length > 0) this.#reportGroup(group, [...certain, ...again]);
  }

  async #runGroup(group: readonly Case[]): Promise<GroupOutcome> {
    const target = this.#target;
    const numBytesBefore = target.wire.numBodyBytes;
    const start = this.#figures ?? (await target.figures());
    const running = group.map(({ attack }) => this.#runOne(attack));
    const beside = await target.ordinary.ask("beside", start);
    const ownProblems = await Promise.all(running);
    const between = await target.figures().catch(() => start);
    const after = await target.ordinary.ask("after", between);
    this.#figures = after.figures;
    if (beside.factor > this.#mostSteps.factor) {
      this.#mostSteps = { factor: beside.factor, labels: group.map(({ attack }) => attack.label) };
    }
    const costs =
      after.figures === null ? [] : this.#costProblems(start, after.figures, target.wire.numBodyBytes - numBytesBefore);
    const sharedProblems = [...beside.faults, ...after.faults, ...costs, ...this.#complaints()];
    if (after.figures === null) {
      await target.restart();
      this.#baseline = null;
    }
    return { ownProblems, sharedProblems };
  }

  async #runAlone(attack: Attack): Promise<string[]> {
    const { ownProblems, sharedProblems } = await this.#runGroup([{ path: "", attack }]);
    return [...ownProblems[0]!, ...sharedProblems];
  }

  async #runOne(attack: Attack): Promise<string[]> {
    try {
      const answers = await attack.run(this.#target.wire);
      return answers.flatMap((answer) => this.#check(answer));
    } catch (error) {
      return [(error as Error).message];
    }
  }

  #check(answer: Answer): string[] {
    this.#statuses.set(answer.status, (this.#statuses.get(answer.status) ?? 0) + 1);
    const { allowedErrorCodes = [] } = this.#class;
    return faultsOf(answer, { secrets: this.#target.surroundings.secrets, allowedErrorCodes });
  }

  #complaints(): string[] {
    const { allowedErrorCodes = [] } = this.#class;
    return this.#target
      .takeComplaints()
      .filter((line) => !allowedErrorCodes.some((code) => line.includes(code)))
      .map((line) => `${LOGGED} ${line.slice(0, 1500)}`);
  }

  #costProblems(before: Figures, after: Figures, numBodyBytes: number): string[] {
    const { maxCpuSeconds = DEFAULT_MAX_CPU_SECONDS } = this.#class;
    const numTokens = after.numGeneratedTokens - before.numGeneratedTokens;
    const limit = maxCpuSeconds + CPU_SECONDS_PER_TOKEN * numTokens + CPU_SECONDS_PER_BYTE * numBodyBytes;
    const spent = after.cpuSeconds - before.cpuSeconds;
    return spent > limit ? [`${COST} ${spent.toFixed(2)} s; the limit is ${limit.toFixed(2)} s.`] : [];
  }

  /** What is held once nothing is running; null if something keeps running, or more is held than last time. */
  async #settle(): Promise<Holdings | null> {
    this.#figures = null;
    try {
      return await this.#target.settle(this.#baseline);
    } catch (error) {
      this.#reportGroup([], [(error as Error).message]);
      return null;
    }
  }

  async #report({ path, attack }: Case, problems: readonly string[]): Promise<void> {
    const shrunk = this.#options.isKnown?.(problems) === true ? null : await this.#shrink(path, problems);
    const found = shrunk ?? { path, attack, problems };
    const { route, label, shown } = found.attack;
    this.#faults.push({
      className: this.#class.name,
      seed: this.#options.seed,
      path: found.path,
      routeFilter: this.#options.route ?? null,
      route,
      label,
      shown,
      problems: found.problems,
    });
  }

  /** The smallest case of the same fault; null if the attack alone is harmless or takes too long to repeat often. */
  async #shrink(path: string, problems: readonly string[]): Promise<(Case & { problems: readonly string[] }) | null> {
    const { seed, shrinkMs = DEFAULT_SHRINK_MS } = this.#options;
    if (shrinkMs === 0) return null;
    const kinds = new Set(problems.map(kindOf));
    let smallest: { attack: Attack; problems: readonly string[] } | null = null;
    // Not fast-check's own limit, which would leave the current attack running after the end of the round.
    let deadline = performance.now() + shrinkMs;
    const property = fc.asyncProperty(this.#arbitrary, async (attack) => {
      const start = performance.now();
      if (start > deadline) return true;
      const found = await this.#runAlone(attack);
      if (performance.now() - start > MAX_SHRINKABLE_MS) deadline = 0;
      if (!found.some((problem) => kinds.has(kindOf(problem)))) return true;
      smallest = { attack, problems: found };
      return false;
    });
    const { counterexamplePath } = await fc.check(property, { seed, path, numRuns: 1 });
    if (counterexamplePath === null || smallest === null) return null;
    return { path: counterexamplePath, ...(smallest as { attack: Attack; problems: readonly string[] }) };
  }

  #reportGroup(group: readonly Case[], problems: readonly string[]): void {
    const shown = group.map(({ path, attack }) => `${path}: ${attack.route} ${attack.label}`).join("\n");
    const label = group.length === 0 ? "all of the round" : `cases ${group[0]!.path} to ${group.at(-1)!.path} together`;
    this.#faults.push({
      className: this.#class.name,
      seed: this.#options.seed,
      path: null,
      routeFilter: this.#options.route ?? null,
      route: "",
      label,
      shown,
      problems,
    });
  }
}
