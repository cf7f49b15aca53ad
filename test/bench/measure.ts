/** Figures, ratios, the table that shows them, and progress messages of long measurements. */
import { performance } from "node:perf_hooks";

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

/** One line of the table and one entry of the JSON file: the measurement and what it is compared with. */
export interface Figure {
  readonly name: string;
  readonly unit: string;
  /** Median over the rounds. */
  readonly ours: number;
  /** The other side's median; null if there is a limit instead, like `ratio`. */
  readonly theirs: number | null;
  readonly ratio: number | null;
  /** For the ratio if there is one, otherwise for `ours`; null for a figure without a target. */
  readonly target: { readonly comparison: ">=" | "<="; readonly value: number } | null;
  /** Null without a target. */
  readonly reached: boolean | null;
  readonly rounds: { readonly ours: readonly number[]; readonly theirs: readonly number[] };
}

export interface RatioOptions {
  readonly name: string;
  readonly unit: string;
  /** Higher is better; one entry per round, both sides measured alternately. */
  readonly ours: readonly number[];
  readonly theirs: readonly number[];
  readonly target: number;
}

/** The median of the rounds' ratios: both sides of a round ran under the same conditions. */
export function ratioFigure({ name, unit, ours, theirs, target }: RatioOptions): Figure {
  const ratio = median(ours.map((value, round) => value / theirs[round]!));
  return {
    name,
    unit,
    ours: median(ours),
    theirs: median(theirs),
    ratio,
    target: { comparison: ">=", value: target },
    reached: ratio >= target,
    rounds: { ours, theirs },
  };
}

/** `amount` per second of both sides, which run by turns after one run of each. */
export function speedsByTurns(
  sides: { readonly ours: () => void; readonly theirs: () => void },
  { numTurns, amount }: { readonly numTurns: number; readonly amount: number },
): { readonly ours: number[]; readonly theirs: number[] } {
  const speeds = { ours: [] as number[], theirs: [] as number[] };
  const names = ["ours", "theirs"] as const;
  for (const name of names) sides[name]();
  for (let turn = 0; turn < numTurns; turn++) {
    for (const name of names) {
      const startMs = performance.now();
      sides[name]();
      speeds[name].push((amount * 1000) / (performance.now() - startMs));
    }
  }
  return speeds;
}

export interface LimitOptions {
  readonly name: string;
  readonly unit: string;
  /** One entry per round. */
  readonly values: readonly number[];
  readonly comparison: ">=" | "<=";
  readonly limit: number;
}

/** A figure with a limit instead of a peer. */
export function limitFigure({ name, unit, values, comparison, limit }: LimitOptions): Figure {
  const ours = median(values);
  return {
    name,
    unit,
    ours,
    theirs: null,
    ratio: null,
    target: { comparison, value: limit },
    reached: comparison === ">=" ? ours >= limit : ours <= limit,
    rounds: { ours: values, theirs: [] },
  };
}

/** A figure without a target. */
export function plainFigure(name: string, unit: string, values: readonly number[]): Figure {
  return comparedFigure(name, unit, values, []);
}

/** A figure beside the other side's, if there are values of it, without a ratio. */
export function comparedFigure(name: string, unit: string, ours: readonly number[], theirs: readonly number[]): Figure {
  const other = theirs.length === 0 ? null : median(theirs);
  const rounds = { ours, theirs };
  return { name, unit, ours: median(ours), theirs: other, ratio: null, target: null, reached: null, rounds };
}

function format(value: number): string {
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

function formatTarget({ unit, ratio, target }: Figure): string {
  if (target === null) return "";
  const limit = `${target.comparison} ${target.value}`;
  return ratio === null ? `${limit} ${unit}` : limit;
}

const verdicts: Readonly<Record<string, string>> = { true: "reached", false: "MISSED", null: "" };

export function printTable(title: string, figures: readonly Figure[]): void {
  const rows = [
    ["", "ours", "theirs", "ratio", "target", ""],
    ...figures.map((figure) => [
      figure.name,
      `${format(figure.ours)} ${figure.unit}`,
      figure.theirs === null ? "" : `${format(figure.theirs)} ${figure.unit}`,
      figure.ratio === null ? "" : figure.ratio.toFixed(2),
      formatTarget(figure),
      verdicts[String(figure.reached)]!,
    ]),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  console.log(`\n${title}`);
  for (const row of rows)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join("  ")
        .trimEnd(),
    );
}

/** Writes to stderr, so that stdout contains only the tables, with the seconds since the process started. */
export function reportProgress(text: string): void {
  console.error(`[${(performance.now() / 1000).toFixed(0).padStart(4)} s] ${text}`);
}

/**
 * The parts of a bench that `--only` names, all if it names none.
 *
 * @throws Error for a name that no part has.
 */
export function selectParts<Part>(
  parts: readonly Part[],
  nameOf: (part: Part) => string,
  only: readonly string[],
): Part[] {
  const unknown = only.find((name) => !parts.some((part) => nameOf(part) === name));
  if (unknown !== undefined) throw new Error(`There is no ${unknown}; there are ${parts.map(nameOf).join(", ")}.`);
  return parts.filter((part) => only.length === 0 || only.includes(nameOf(part)));
}
