/** `npm run attack`: attacks a service for a given time, and reports violated invariants. */
import { parseArgs } from "node:util";
import { Presets, SingleBar } from "cli-progress";

import { attackClasses } from "./attack-classes.ts";
import type { AttackClass } from "./attack.ts";
import { describeFault, Summary } from "./describe.ts";
import { kindOf } from "./problems.ts";
import { runRound } from "./round.ts";
import type { Fault } from "./round.ts";
import { readSeed } from "./seed.ts";

const DEFAULT_MINUTES = 5;
/** Each round has its own service, so that leaks show at its end. */
const CASES_PER_ROUND = 400;
/** Time limit of a round, so that classes with slow cases do not delay the others. */
const ROUND_SECONDS = 60;
const MAX_FAULTS_PER_ROUND = 10;

const usage = `Usage: npm run attack -- [--minutes N] [--seed N] [--class NAME ...] [--route PATH] [--case PATH]
--minutes N    run this long (default ${DEFAULT_MINUTES}); classes take turns
--seed N       seed of the first round (default 1), increased by one for each further round; "new" picks a random one
--class NAME   ${attackClasses.map(({ name }) => name).join(", ")} (default: all)
--route PATH   attack only this route, for example /v1/chat/completions
--case PATH    run one case of the seed again, as named in a report; needs one --class
Exit code: 1 if an invariant was violated, 2 for invalid arguments.`;

interface Arguments {
  readonly minutes: number;
  readonly seed: number;
  readonly classes: readonly AttackClass[];
  readonly route: string | null;
  readonly path: string | null;
}

function readArguments(): Arguments {
  const { values } = parseArgs({
    options: {
      minutes: { type: "string" },
      seed: { type: "string" },
      class: { type: "string", multiple: true },
      route: { type: "string" },
      case: { type: "string" },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help === true) {
    console.log(usage);
    process.exit(0);
  }
  const minutes = Number(values.minutes ?? DEFAULT_MINUTES);
  if (!(minutes > 0)) throw new Error(`--minutes is ${values.minutes}: expected a number above 0.`);
  const names = values.class ?? attackClasses.map(({ name }) => name);
  const route = values.route ?? null;
  const classes = names
    .map(findClass)
    .filter(({ routes }) => route === null || routes.some((one) => isRoute(one, route)));
  if (classes.length === 0) throw new Error(`--route is ${route}: none of the chosen classes attacks it.`);
  const path = values.case ?? null;
  if (path !== null && (classes.length !== 1 || !/^\d+(?::\d+)*$/.test(path))) {
    throw new Error(`--case is ${path}: expected numbers separated by colons, beside exactly one --class.`);
  }
  return { minutes, seed: readSeed(values.seed), classes, route, path };
}

function findClass(name: string): AttackClass {
  const found = attackClasses.find((one) => one.name === name);
  if (found === undefined) throw new Error(`There is no class ${name}.`);
  return found;
}

function isRoute(route: string, wanted: string): boolean {
  return route === wanted || route.endsWith(` ${wanted}`);
}

/** Reports faults of one kind once. Mutable. */
class FaultLog {
  readonly #faults = new Map<string, Fault[]>();

  has = (className: string, problems: readonly string[]): boolean => this.#faults.has(keyOf(className, problems));

  add(fault: Fault): void {
    const key = keyOf(fault.className, fault.problems);
    const alike = this.#faults.get(key);
    if (alike !== undefined) return void alike.push(fault);
    this.#faults.set(key, [fault]);
  }

  get size(): number {
    return this.#faults.size;
  }

  print(): void {
    for (const [first, ...others] of this.#faults.values()) {
      const more = others.length === 0 ? "" : `\n  and ${others.length} more of this kind`;
      console.log(`\n${describeFault(first!)}${more}`);
    }
  }
}

function keyOf(className: string, problems: readonly string[]): string {
  return [className, ...new Set(problems.map(kindOf))].join("\n");
}

async function run({ minutes, seed, classes, route, path }: Arguments): Promise<number> {
  const totalSeconds = Math.ceil(minutes * 60);
  const start = performance.now();
  const seconds = (): number => Math.min(totalSeconds, Math.floor((performance.now() - start) / 1000));
  const bar = new SingleBar(
    { format: " {bar} {value}/{total} s | {numCases} cases, {numFaults} faults | {name}", hideCursor: true },
    Presets.shades_grey,
  );
  const summaries = new Map(classes.map(({ name }) => [name, new Summary(name)]));
  const faults = new FaultLog();
  console.log(
    `Seed ${seed}, ${path === null ? `${minutes} minutes` : `case ${path}`}, ${classes.map(({ name }) => name).join(", ")}.`,
  );
  let numCases = 0;
  let name = "";
  const show = (more = 0): void => bar.update(seconds(), { numCases: numCases + more, numFaults: faults.size, name });
  bar.start(totalSeconds, 0, { numCases, numFaults: 0, name });
  const ticks = setInterval(show, 1000);
  for (let round = 0; path === null ? seconds() < totalSeconds : round === 0; round++) {
    const attackClass = classes[round % classes.length]!;
    ({ name } = attackClass);
    const left = totalSeconds - seconds();
    const report = await runRound(attackClass, {
      seed: seed + Math.floor(round / classes.length),
      cases: path === null ? { count: CASES_PER_ROUND } : { path },
      route,
      maxFaults: MAX_FAULTS_PER_ROUND,
      isKnown: (problems) => faults.has(attackClass.name, problems),
      onProgress: show,
      ...(path === null && { signal: AbortSignal.timeout(Math.max(1, Math.min(left, ROUND_SECONDS)) * 1000) }),
    });
    numCases += report.numCases;
    summaries.get(name)!.add(report);
    for (const fault of report.faults) faults.add(fault);
  }
  clearInterval(ticks);
  bar.stop();
  console.table(
    Object.fromEntries(
      [...summaries.values()].filter((one) => one.numCases > 0).map((one) => [one.className, one.toRow()]),
    ),
  );
  faults.print();
  console.log(faults.size === 0 ? "\nAll invariants held." : `\n${faults.size} kinds of faults.`);
  return faults.size === 0 ? 0 : 1;
}

let chosen: Arguments;
try {
  chosen = readArguments();
} catch (error) {
  console.error(`${(error as Error).message}\n${usage}`);
  process.exit(2);
}
process.exitCode = await run(chosen);
