/** Finds short sequences in a long one: tokens in a prompt, or code units in its text. */

/** Remembers where each sequence was found last, so that no part is searched twice. Mutable. */
export class SequenceSearch {
  readonly #prompt: readonly number[];
  /** Positions of each element, in order; created on first use. */
  #positions: Map<number, number[]> | null = null;
  /** By sequence: index into the positions of its first element. */
  readonly #found = new Map<string, number>();

  constructor(prompt: readonly number[]) {
    this.#prompt = prompt;
  }

  /**
   * Returns the first occurrence at or after `from`, which must not decrease between calls for one sequence; null if
   * there is none. An empty sequence is never found. All calls for one sequence together take time linear in the
   * occurrences of its first element, times its length.
   */
  find(sequence: readonly number[], from: number): number | null {
    if (sequence.length === 0) return null;
    const positions = this.#positionsOf(sequence[0]!);
    const key = sequence.join();
    let index = this.#found.get(key) ?? 0;
    while (index < positions.length) {
      if (positions[index]! >= from && isSequenceAt(this.#prompt, sequence, positions[index]!)) break;
      index += 1;
    }
    this.#found.set(key, index);
    return index < positions.length ? positions[index]! : null;
  }

  #positionsOf(element: number): readonly number[] {
    if (this.#positions === null) {
      this.#positions = new Map();
      for (const [position, value] of this.#prompt.entries()) {
        const known = this.#positions.get(value);
        if (known === undefined) this.#positions.set(value, [position]);
        else known.push(position);
      }
    }
    return this.#positions.get(element) ?? [];
  }
}

function isSequenceAt(prompt: readonly number[], sequence: readonly number[], start: number): boolean {
  for (let index = 1; index < sequence.length; index += 1) {
    if (prompt[start + index] !== sequence[index]) return false;
  }
  return true;
}

/** Counts occurrences that do not overlap. Stores nothing, because every prompt is counted, even without images. */
export function countOccurrences(prompt: readonly number[], sequence: readonly number[]): number {
  if (sequence.length === 0) return 0;
  let count = 0;
  let at = prompt.indexOf(sequence[0]!);
  while (at !== -1) {
    const isFound = isSequenceAt(prompt, sequence, at);
    if (isFound) count += 1;
    at = prompt.indexOf(sequence[0]!, at + (isFound ? sequence.length : 1));
  }
  return count;
}

/**
 * Returns the first occurrence of `sequence` in `prompt` at or after `from`, or null, in time linear in both (Knuth,
 * Morris and Pratt). For long sequences that are searched once.
 */
export function findSequence(prompt: readonly number[], sequence: readonly number[], from: number): number | null {
  if (sequence.length === 0) return null;
  const borders = bordersOf(sequence);
  let matched = 0;
  for (let position = from; position < prompt.length; position += 1) {
    while (matched > 0 && prompt[position] !== sequence[matched]) matched = borders[matched - 1]!;
    if (prompt[position] === sequence[matched]) matched += 1;
    if (matched === sequence.length) return position + 1 - matched;
  }
  return null;
}

/** [sequence.length]: for each prefix, the length of its longest proper prefix that is also its suffix. */
function bordersOf(sequence: readonly number[]): Int32Array {
  const borders = new Int32Array(sequence.length);
  let length = 0;
  for (let index = 1; index < sequence.length; index += 1) {
    while (length > 0 && sequence[index] !== sequence[length]) length = borders[length - 1]!;
    if (sequence[index] === sequence[length]) length += 1;
    borders[index] = length;
  }
  return borders;
}
