/** Divides all characters by the sets that contain them. */
import { LAST_CODE_POINT } from "./code-point-set.ts";
import type { CodePointRange, CodePointSet } from "./code-point-set.ts";

/** The coarsest sets of which each given set is a union. Together they are all characters. */
export function characterClasses(sets: readonly CodePointSet[]): readonly CodePointSet[] {
  const changes = new Map<number, number[]>();
  const change = (code: number, set: number): void => {
    const known = changes.get(code);
    if (known === undefined) changes.set(code, [set]);
    else known.push(set);
  };
  const different = [...new Map(sets.map((set) => [set.join(";"), set])).values()];
  for (const [index, set] of different.entries()) {
    for (const [first, last] of set) {
      change(first, index);
      change(last + 1, index);
    }
  }
  const inside = new Set<number>();
  const classes = new Map<string, CodePointRange[]>();
  const starts = [...changes.keys()].sort((left, right) => left - right);
  if (starts[0] !== 0) starts.unshift(0);
  for (const [index, start] of starts.entries()) {
    if (start > LAST_CODE_POINT) break;
    for (const set of changes.get(start) ?? []) if (!inside.delete(set)) inside.add(set);
    const range = [start, (starts[index + 1] ?? LAST_CODE_POINT + 1) - 1] as const;
    const key = [...inside].sort((left, right) => left - right).join();
    const ranges = classes.get(key);
    if (ranges === undefined) classes.set(key, [range]);
    else ranges.push(range);
  }
  return [...classes.values()];
}
