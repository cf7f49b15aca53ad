/** Times of kernels out of a table of Nsight Compute, by step and by kernel. */

export interface ProfiledStep {
  readonly name: string;
  readonly numSequences: number;
  /** Of each sequence. */
  readonly numTokens: number;
}

/** The steps that `profiled-steps.ts` runs, in order. */
export function profiledSteps(isSmall: boolean): readonly ProfiledStep[] {
  const counts = isSmall ? [1, 4] : [1, 32, 128];
  return [
    ...counts.map((numSequences) => ({ name: `decode of ${numSequences}`, numSequences, numTokens: 1 })),
    { name: "a prompt chunk", numSequences: 1, numTokens: isSmall ? 64 : 1024 },
  ];
}

export interface KernelTime {
  /** Without namespaces, parameters and, if it is longer than a line, arguments of templates. */
  readonly kernel: string;
  readonly count: number;
  readonly microseconds: number;
}

const durationColumn = "gpu__time_duration.sum";
const nameColumn = "Kernel Name";
/** The kernel around each step. */
const marker = /\bOP_Sin\b|_Sin\b|\bSin</;

/**
 * The kernels of each step, those with the longest times first.
 *
 * @param csv Of `ncu --csv --page raw --print-units base`, with lines of its own before the table.
 * @throws Error if it has no such table.
 */
export function kernelsOfSteps(csv: string): readonly (readonly KernelTime[])[] {
  const rows = csv
    .split("\n")
    .filter((line) => line.startsWith('"'))
    .map(parseRow);
  const header = rows[0] ?? [];
  const [name, duration] = [header.indexOf(nameColumn), header.indexOf(durationColumn)];
  if (name === -1 || duration === -1)
    throw new Error(`The profile has no columns ${nameColumn} and ${durationColumn}.`);
  const steps: Map<string, { count: number; microseconds: number }>[] = [];
  let isInStep = false;
  // The second row has the units.
  for (const row of rows.slice(2)) {
    if (marker.test(row[name]!)) {
      isInStep = !isInStep;
      if (isInStep) steps.push(new Map());
      continue;
    }
    const kernels = steps.at(-1);
    if (!isInStep || kernels === undefined) continue;
    const kernel = shortName(row[name]!);
    const known = kernels.get(kernel) ?? { count: 0, microseconds: 0 };
    known.count += 1;
    known.microseconds += Number(row[duration]!.replaceAll(",", "")) / 1000;
    kernels.set(kernel, known);
  }
  return steps.map((kernels) =>
    [...kernels]
      .map(([kernel, times]) => ({ kernel, count: times.count, microseconds: times.microseconds }))
      .toSorted((left, right) => right.microseconds - left.microseconds),
  );
}

const MAX_NAME_LENGTH = 100;

function shortName(name: string): string {
  const withoutNamespaces = name.replaceAll(/(?:\w+|<unnamed>|\(anonymous namespace\))::/g, "").replace(/^void /, "");
  const withoutParameters = withoutNamespaces.replace(/\((?:[^()]|\([^()]*\))*\)$/, "");
  return withoutParameters.slice(0, MAX_NAME_LENGTH);
}

/** A row of a table whose every field is in quotation marks, which a field doubles. */
function parseRow(line: string): string[] {
  return [...line.matchAll(/"((?:[^"]|"")*)"/g)].map(([, field]) => field!.replaceAll('""', '"'));
}
