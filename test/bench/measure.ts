/** Figures, ratios and the table they are printed in. */

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** One line of the table: what was measured, what it is held against, and the wanted ratio or limit. */
export interface Figure {
  readonly name: string;
  readonly ours: string;
  readonly theirs: string;
  readonly ratio: string;
  readonly target: string;
  readonly reached: boolean;
}

export interface RatioOptions {
  readonly name: string;
  readonly unit: string;
  /** Higher is better; one entry per round, both sides measured in turn. */
  readonly ours: readonly number[];
  readonly theirs: readonly number[];
  readonly target: number;
}

/** The median of the rounds' ratios: both sides of a round saw the same machine. */
export function ratioFigure({ name, unit, ours, theirs, target }: RatioOptions): Figure {
  const ratio = median(ours.map((value, round) => value / theirs[round]));
  return {
    name,
    ours: `${format(median(ours))} ${unit}`,
    theirs: `${format(median(theirs))} ${unit}`,
    ratio: ratio.toFixed(2),
    target: `>= ${target}`,
    reached: ratio >= target,
  };
}

/** A figure with an upper limit instead of a peer. */
export function limitFigure(name: string, unit: string, values: readonly number[], limit: number): Figure {
  const value = median(values);
  return {
    name,
    ours: `${format(value)} ${unit}`,
    theirs: "",
    ratio: "",
    target: `<= ${limit} ${unit}`,
    reached: value <= limit,
  };
}

function format(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

export function printTable(title: string, figures: readonly Figure[]): void {
  const rows = [
    ["", "ours", "theirs", "ratio", "target", ""],
    ...figures.map((figure) => [
      figure.name,
      figure.ours,
      figure.theirs,
      figure.ratio,
      figure.target,
      figure.reached ? "reached" : "MISSED",
    ]),
  ];
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  console.log(`\n${title}`);
  for (const row of rows)
    console.log(
      row
        .map((cell, column) => cell.padEnd(widths[column]))
        .join("  ")
        .trimEnd(),
    );
}
