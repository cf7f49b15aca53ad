/** Sets of characters. */

/** Both ends are included. */
export type CodePointRange = readonly [first: number, last: number];
/** Ascending; ranges neither overlap nor touch. */
export type CodePointSet = readonly CodePointRange[];

export const LAST_CODE_POINT = 0x10_ff_ff;
/** Halves of UTF-16 surrogate pairs, which are not characters by themselves. */
export const FIRST_SURROGATE = 0xd8_00;
export const LAST_SURROGATE = 0xdf_ff;

export function unite(...sets: readonly (readonly CodePointRange[])[]): CodePointSet {
  const united: [number, number][] = [];
  for (const [first, last] of sets.flat().sort((left, right) => left[0] - right[0])) {
    const previous = united.at(-1);
    if (previous !== undefined && first <= previous[1] + 1) previous[1] = Math.max(previous[1], last);
    else united.push([first, last]);
  }
  return united;
}

export function complement(set: CodePointSet): CodePointSet {
  const gaps: CodePointRange[] = [];
  let next = 0;
  for (const [first, last] of set) {
    if (next < first) gaps.push([next, first - 1]);
    next = last + 1;
  }
  if (next <= LAST_CODE_POINT) gaps.push([next, LAST_CODE_POINT]);
  return gaps;
}

export function subtract(set: CodePointSet, removed: CodePointSet): CodePointSet {
  return complement(unite(complement(set), removed));
}

/** Whether UTF-8 can encode none of its characters. */
export function isEmptySet(set: CodePointSet): boolean {
  return set.every(([first, last]) => first >= FIRST_SURROGATE && last <= LAST_SURROGATE);
}
