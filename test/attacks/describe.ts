/** Formats the findings of a run as text. */
import type { Fault, RoundReport } from "./round.ts";

export function describeFault(fault: Fault): string {
  const { className, route, label, shown, problems } = fault;
  return [
    `${className}: ${route} ${label}`,
    ...problems.map((problem) => `  ${problem}`),
    `  ${shown.replaceAll("\n", "\n  ")}`,
    `  again: npm run attack -- ${argumentsOf(fault).join(" ")}`,
  ].join("\n");
}

function argumentsOf({ className, seed, routeFilter, path }: Fault): string[] {
  return [
    `--class ${className}`,
    `--seed ${seed}`,
    ...(routeFilter === null ? [] : [`--route ${routeFilter}`]),
    ...(path === null ? [] : [`--case ${path}`]),
  ];
}

/** The totals of the rounds of one class. Mutable. */
export class Summary {
  readonly className: string;
  #numCases = 0;
  #numFaults = 0;
  #mostSteps = 0;
  readonly #statuses = new Map<string, number>();

  constructor(className: string) {
    this.className = className;
  }

  get numCases(): number {
    return this.#numCases;
  }

  add({ numCases, statuses, mostSteps, faults }: RoundReport): void {
    this.#numCases += numCases;
    this.#numFaults += faults.length;
    this.#mostSteps = Math.max(this.#mostSteps, mostSteps.factor);
    for (const [status, count] of statuses) {
      const hundred = `${Math.floor(status / 100)}xx`;
      this.#statuses.set(hundred, (this.#statuses.get(hundred) ?? 0) + count);
    }
  }

  /** By the table's column heading. */
  toRow(): Record<string, string | number> {
    return {
      cases: this.#numCases,
      "2xx": (this.#statuses.get("2xx") ?? 0) + (this.#statuses.get("3xx") ?? 0),
      "4xx": this.#statuses.get("4xx") ?? 0,
      "5xx": this.#statuses.get("5xx") ?? 0,
      "slowest ordinary request": `${this.#mostSteps.toFixed(1)} × its steps`,
      faults: this.#numFaults,
    };
  }
}
