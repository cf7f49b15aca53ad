/** Writes the nodes of programs: equal nodes once, each in its simplest form. */
import { isEmptySet } from "./code-point-set.ts";
import type { CodePointSet } from "./code-point-set.ts";
import { nodeKinds, NODE_STRIDE, recordOf, UNBOUNDED } from "./program.ts";
import type { Program } from "./program.ts";
import { refuseStructuredOutput } from "./refusal.ts";

/** Forty times the nodes of the longest pattern. A program of this size takes 16 MB. */
const MAX_NODES = 1_000_000;

/** Maximum depth to which a node is rewritten. */
const MAX_REWRITTEN_LEVELS = 32;

/** Mutable. Nodes are numbers; the empty text is node 0. */
export class ProgramBuilder {
  readonly #nodes: number[] = [];
  readonly #options: number[] = [];
  readonly #ranges: number[] = [];
  readonly #words: Buffer[] = [];
  readonly #rules: number[] = [];
  /** By node: whether it matches the empty text. */
  readonly #isNullable: boolean[] = [];
  /** By node: the maximum number of characters of a text, or Infinity. */
  readonly #maxLengths: number[] = [];
  readonly #nodesByKey = new Map<string | number, number>();
  /** By nullable node: see `#withoutEmpty`. */
  readonly #nonEmpty = new Map<number, number>();

  readonly empty: number;

  constructor() {
    this.empty = this.#add("", nodeKinds.empty, 0, 0, 0, true, 0);
  }

  isNullable(node: number): boolean {
    return this.#isNullable[node]!;
  }

  maxLength(node: number): number {
    return this.#maxLengths[node]!;
  }

  isRepetition(node: number): boolean {
    return this.#kindOf(node) === nodeKinds.repetition;
  }

  part(repetition: number): number {
    return this.#nodes[repetition * NODE_STRIDE + 1]!;
  }

  /** The set must contain a character that UTF-8 can encode. */
  set(set: CodePointSet): number {
    const key = `s${set.join(";")}`;
    const known = this.#nodesByKey.get(key);
    if (known !== undefined) return known;
    if (isEmptySet(set)) refuseStructuredOutput("The structured output has a set of characters that nothing can match");
    const first = this.#ranges.length / 2;
    for (const [from, to] of set) this.#ranges.push(from, to);
    return this.#add(key, nodeKinds.set, first, this.#ranges.length / 2, 0, false, 1);
  }

  words(texts: readonly string[]): number {
    const different = [...new Set(texts)];
    if (different.length === 1 && different[0] === "") return this.empty;
    const key = different.length === 1 ? `w${different[0]}` : `v${JSON.stringify(different)}`;
    const known = this.#nodesByKey.get(key);
    if (known !== undefined) return known;
    const first = this.#words.length;
    let maxLength = 0;
    for (const text of different) {
      if (!text.isWellFormed()) refuseStructuredOutput("The structured output contains half of a surrogate pair");
      this.#words.push(Buffer.from(text));
      maxLength = Math.max(maxLength, text.length);
    }
    const sorted = this.#words.splice(first).sort((left, right) => Buffer.compare(left, right));
    for (const word of sorted) this.#words.push(word);
    return this.#add(key, nodeKinds.words, first, this.#words.length, 0, sorted[0]!.length === 0, maxLength);
  }

  /** Adjacent repetitions of the same part become one. */
  sequence(parts: readonly number[]): number {
    const joined: number[] = [];
    for (let index = 0; index < parts.length; index++) {
      const repeated = this.#repeatedPart(parts[index]!);
      let [min, max] = [0, 0];
      let end = index;
      for (; end < parts.length && this.#repeatedPart(parts[end]!) === repeated; end++) {
        min += this.#minRounds(parts[end]!);
        max += this.#maxRounds(parts[end]!);
      }
      const isAlone = end - index === 1 || this.#isNullable[repeated];
      if (isAlone) end = index + 1;
      const part = isAlone ? parts[index] : this.#repeat(repeated, min, max);
      if (part !== this.empty) joined.push(part!);
      index = end - 1;
    }
    let node = joined.pop() ?? this.empty;
    for (let part = joined.pop(); part !== undefined; part = joined.pop()) node = this.#pair(part, node);
    return node;
  }

  alternatives(options: readonly number[]): number {
    const different = [...new Set(options)];
    if (different.length === 1) return different[0]!;
    const key = `a${different.join()}`;
    const known = this.#nodesByKey.get(key);
    if (known !== undefined) return known;
    const first = this.#options.length;
    let maxLength = 0;
    for (const option of different) {
      this.#options.push(option);
      maxLength = Math.max(maxLength, this.#maxLengths[option]!);
    }
    const isNullable = different.some((option) => this.#isNullable[option]);
    return this.#add(key, nodeKinds.alternatives, first, this.#options.length, 0, isNullable, maxLength);
  }

  /** Rounds of the simplified repetition are never empty, so a counted round takes at least one character. */
  repetition(part: number, min: number, max: number): number {
    if (max === 0 || part === this.empty) return this.empty;
    if (this.#isNullable[part]) {
      const nonEmpty = this.#withoutEmpty(part);
      if (nonEmpty !== part) return this.repetition(nonEmpty, 0, max);
      return this.#repeat(part, 0, max);
    }
    if (min === 1 && max === 1) return part;
    if (this.isRepetition(part)) {
      const [, inner, innerMin, innerMax] = recordOf(this.#nodes, part);
      // `(x{1,b}){c,d}` can have any number of rounds from c to bd.
      if (innerMin === 1) return this.#repeat(inner, min, innerMax * max);
    }
    return this.#repeat(part, min, max);
  }

  /** The part has a text with so few characters. */
  limited(part: number, max: number): number {
    if (this.#maxLengths[part]! <= max) return part;
    if (max === 0) return this.empty;
    const key = `l${part}:${max}`;
    const known = this.#nodesByKey.get(key);
    if (known !== undefined) return known;
    const most = Math.min(max, UNBOUNDED);
    return this.#add(key, nodeKinds.limited, part, most, 0, this.#isNullable[part]!, this.#maxLengths[part]!);
  }

  rule(index: number, isNullable: boolean): number {
    return (
      this.#nodesByKey.get(`r${index}`) ?? this.#add(`r${index}`, nodeKinds.rule, index, 0, 0, isNullable, Infinity)
    );
  }

  /** Returns its index. The body is set later. */
  addRule(): number {
    return this.#rules.push(this.empty) - 1;
  }

  setBody(rule: number, body: number): void {
    this.#rules[rule] = body;
  }

  build(root: number): Program {
    const numBytes = this.#words.reduce((sum, word) => sum + word.length, 0);
    const wordBytes = new Uint8Array(new SharedArrayBuffer(numBytes));
    const wordEnds: number[] = [];
    let end = 0;
    for (const word of this.#words) {
      wordBytes.set(word, end);
      wordEnds.push((end += word.length));
    }
    return {
      nodes: share(this.#nodes),
      options: share(this.#options),
      ranges: share(this.#ranges),
      wordBytes,
      wordEnds: share(wordEnds),
      rules: share(this.#rules),
      root,
    };
  }

  /**
   * The texts of a nullable node except the empty one; the node itself if they are not easy to determine. Each node is
   * rewritten once, because nodes share parts: as trees, they may be exponentially large.
   */
  #withoutEmpty(node: number, levelsLeft = MAX_REWRITTEN_LEVELS): number {
    if (levelsLeft === 0) return node;
    let nonEmpty = this.#nonEmpty.get(node);
    if (nonEmpty === undefined) this.#nonEmpty.set(node, (nonEmpty = this.#rewriteWithoutEmpty(node, levelsLeft)));
    return nonEmpty;
  }

  #rewriteWithoutEmpty(node: number, levelsLeft: number): number {
    const [kind, a, b, c] = recordOf(this.#nodes, node);
    const nonEmptyOf = (part: number): number =>
      this.#isNullable[part] ? this.#withoutEmpty(part, levelsLeft - 1) : part;
    if (kind === nodeKinds.repetition) return this.#isNullable[a] ? node : this.repetition(a, 1, c);
    if (kind === nodeKinds.words) {
      return this.words(this.#words.slice(a, b).flatMap((word) => (word.length === 0 ? [] : [word.toString()])));
    }
    if (kind === nodeKinds.sequence) {
      const [first, second] = [nonEmptyOf(a), nonEmptyOf(b)];
      if (this.#isNullable[first] || this.#isNullable[second]) return node;
      return this.alternatives([this.sequence([first, b]), second]);
    }
    if (kind !== nodeKinds.alternatives) return node;
    const options: number[] = [];
    for (const option of this.#options.slice(a, b)) {
      if (option === this.empty) continue;
      const nonEmpty = nonEmptyOf(option);
      if (this.#isNullable[nonEmpty]) return node;
      options.push(nonEmpty);
    }
    return this.alternatives(options);
  }

  /** The part that a repetition repeats. Any other node is its own single round. */
  #repeatedPart(node: number): number {
    return this.isRepetition(node) ? this.part(node) : node;
  }

  #minRounds(node: number): number {
    return this.isRepetition(node) ? this.#nodes[node * NODE_STRIDE + 2]! : 1;
  }

  #maxRounds(node: number): number {
    return this.isRepetition(node) ? this.#nodes[node * NODE_STRIDE + 3]! : 1;
  }

  #repeat(part: number, min: number, max: number): number {
    const [least, most] = [Math.min(min, UNBOUNDED), Math.min(max, UNBOUNDED)];
    const key = `${part}{${least},${most}`;
    const known = this.#nodesByKey.get(key);
    if (known !== undefined) return known;
    const maxLength = most === UNBOUNDED ? Infinity : most * this.#maxLengths[part]!;
    const isNullable = least === 0 || this.#isNullable[part]!;
    return this.#add(key, nodeKinds.repetition, part, least, most, isNullable, maxLength);
  }

  #pair(first: number, second: number): number {
    const key = first * MAX_NODES + second;
    const known = this.#nodesByKey.get(key);
    if (known !== undefined) return known;
    const isNullable = this.#isNullable[first]! && this.#isNullable[second]!;
    const maxLength = this.#maxLengths[first]! + this.#maxLengths[second]!;
    return this.#add(key, nodeKinds.sequence, first, second, 0, isNullable, maxLength);
  }

  #kindOf(node: number): number {
    return this.#nodes[node * NODE_STRIDE]!;
  }

  /** `kind`, `a`, `b` and `c` as in `nodeKinds`. */
  #add(
    key: string | number,
    kind: number,
    a: number,
    b: number,
    c: number,
    isNullable: boolean,
    maxLength: number,
  ): number {
    const index = this.#isNullable.length;
    if (index === MAX_NODES) refuseStructuredOutput(`The structured output has more than ${MAX_NODES} parts`);
    this.#nodes.push(kind, a, b, c);
    this.#isNullable.push(isNullable);
    this.#maxLengths.push(maxLength);
    this.#nodesByKey.set(key, index);
    return index;
  }
}

function share(numbers: readonly number[]): Int32Array<SharedArrayBuffer> {
  const shared = new Int32Array(new SharedArrayBuffer(numbers.length * Int32Array.BYTES_PER_ELEMENT));
  shared.set(numbers);
  return shared;
}
