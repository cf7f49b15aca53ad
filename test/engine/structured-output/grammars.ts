/** Tokenizers with grammar compilers, and random texts within a grammar. */
import { readFile } from "node:fs/promises";

import type { CompiledGrammar } from "../../../engine/structured-output/compiled-grammar.ts";
import type { Language } from "../../../engine/structured-output/expression.ts";
import { GrammarCompiler } from "../../../engine/structured-output/grammar-compiler.ts";
import { GrammarRow } from "../../../engine/structured-output/grammar-row.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { toProgramInSlices } from "../../../engine/structured-output/language-program.ts";
import { readLanguage } from "../../../engine/structured-output/language.ts";
import { LoadedGrammars } from "../../../engine/structured-output/loaded-grammars.ts";
import type { Program } from "../../../engine/structured-output/program.ts";
import type { Position } from "../../../engine/structured-output/reading.ts";
import { Recognizer } from "../../../engine/structured-output/recognizer.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { createTokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import type { TokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import { WorkMeter } from "../../../engine/structured-output/work-meter.ts";
import { parseTokenizer } from "../../../engine/text/tokenizer.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";

export interface TestVocabulary {
  readonly tokenizer: Tokenizer;
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

const repository = new URL("../../../", import.meta.url);

/** The shipped checkpoint's vocabulary: byte-level BPE. */
export const shapesVocabulary = await loadVocabulary("models/fovea-shapes/tokenizer.json", 598, "</s>");
/** Byte-level BPE; logits have more columns than there are tokens. */
export const llamaVocabulary = await loadVocabulary("test/fixtures/goldens/llama/tokenizer.json", 352, "</s>");
/** SentencePiece with byte fallback, as in Llama 2. */
export const byteFallbackVocabulary = await loadVocabulary("test/fixtures/tokenizers/llama2-legacy.json", 400, "</s>");

async function loadVocabulary(path: string, vocabSize: number, eosToken: string): Promise<TestVocabulary> {
  const tokenizer = parseTokenizer(await readFile(new URL(path, repository), "utf8"), "{}");
  return { tokenizer, vocabSize, eosTokenIds: [tokenizer.tokenId(eosToken)!] };
}

export function createTestCompiler({ tokenizer, vocabSize, eosTokenIds }: TestVocabulary): GrammarCompiler {
  return new GrammarCompiler({ loadVocabulary: () => createGrammarVocabulary(tokenizer, vocabSize, eosTokenIds) });
}

export async function compileOnce(vocabulary: TestVocabulary, output: StructuredOutput): Promise<CompiledGrammar> {
  await using compiler = createTestCompiler(vocabulary);
  return await compiler.compile(output);
}

/** A grammar as loaded by the engine thread. */
export function load(grammar: CompiledGrammar): () => TokenMatcher {
  const grammars = new LoadedGrammars();
  return () => new TokenMatcher(grammars, grammar);
}

/** One text in tokens. */
export class TokenMatcher {
  readonly #tokenIds: number[] = [];
  readonly #eosTokenIds: readonly number[];
  readonly #row: GrammarRow;

  constructor(grammars: LoadedGrammars, grammar: CompiledGrammar) {
    this.#eosTokenIds = grammar.vocabulary.eosTokenIds;
    this.#row = new GrammarRow(grammars.open(grammar), grammar, this.#tokenIds);
  }

  get isTerminated(): boolean {
    return this.#eosTokenIds.includes(this.#tokenIds.at(-1) ?? -1);
  }

  get failure(): Error | null {
    return this.#row.failure;
  }

  /** False if the grammar forbids the token; the matcher is then unusable. */
  accept(tokenId: number): boolean {
    this.#tokenIds.push(tokenId);
    this.#row.acceptNewTokens();
    return this.#row.failure === null;
  }

  fillBitmask(bitmask: TokenBitmask): void {
    this.#row.fillBitmask(bitmask);
  }
}

/** Ids in ascending order. */
export function allowedTokens(matcher: TokenMatcher, vocabSize: number): number[] {
  const bitmask = createTokenBitmask(vocabSize);
  matcher.fillBitmask(bitmask);
  return tokensOf(bitmask, vocabSize);
}

/** Ids in ascending order. */
export function tokensOf(bitmask: TokenBitmask, vocabSize: number): number[] {
  const allowed: number[] = [];
  for (let id = 0; id < vocabSize; id++) if (((bitmask[id >> 5]! >> (id & 31)) & 1) === 1) allowed.push(id);
  return allowed;
}

/** Reads a text byte by byte, without limits on work. */
export class Reader {
  readonly #recognizer: Recognizer;

  constructor(structuredOutput: StructuredOutput) {
    const meter = new WorkMeter();
    meter.allow(Infinity);
    this.#recognizer = new Recognizer(toProgram(readLanguage(structuredOutput)), meter);
  }

  start(): Position {
    return this.#recognizer.start();
  }

  /** Null if no text continues like this. */
  advance(position: Position, bytes: Iterable<number>): Position | null {
    let next: Position | null = position;
    for (const byte of bytes) {
      next = this.#recognizer.advance(next, byte);
      if (next === null) return null;
    }
    return next;
  }

  judge(bytes: Iterable<number>): "none" | "begun" | "whole" {
    const position = this.advance(this.start(), bytes);
    return position === null ? "none" : position.canEnd ? "whole" : "begun";
  }
}

/** Numbers in [0, 1), the same for the same seed (mulberry32). */
export function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Tokens drawn uniformly before a walk starts to prefer those that close strings, lists and objects. */
const freeTokens = 40;
const maxTokens = 2000;
const closingTexts = new Set(["}", "]", '"']);

export interface WalkOptions {
  /** Skips long walks instead of leading them to an end. */
  readonly skipsLong?: boolean;
  /** The grammar, if it is already loaded. */
  readonly createMatcher?: () => TokenMatcher;
}

/**
 * The texts of random walks: uniformly among the allowed tokens, up to an end token. Throws for a walk that does not
 * end.
 */
export function* walk(
  grammar: CompiledGrammar,
  { tokenizer, vocabSize, eosTokenIds }: TestVocabulary,
  numWalks: number,
  { skipsLong = false, createMatcher = load(grammar) }: WalkOptions = {},
): Iterable<Uint8Array> {
  const closing = Array.from({ length: vocabSize }, (_, id) => id).filter((id) =>
    closingTexts.has(tokenizer.decode([id])),
  );
  walks: for (let seed = 1; seed <= numWalks; seed++) {
    const matcher = createMatcher();
    const random = createRandom(seed);
    const bytes: number[] = [];
    for (let numTokens = 0; !matcher.isTerminated; numTokens++) {
      const allowed = allowedTokens(matcher, vocabSize);
      if (skipsLong && numTokens === freeTokens) continue walks;
      if (allowed.length === 0 || numTokens === maxTokens)
        throw new Error(`Walk ${seed} ends nowhere: ${bytes.length}; ${matcher.failure?.message}`);
      const preferred = [...eosTokenIds, ...closing].find((id) => allowed.includes(id));
      const isHurried = numTokens > freeTokens && preferred !== undefined && random() < 0.5;
      const tokenId = isHurried ? preferred : allowed[Math.floor(random() * allowed.length)];
      if (!matcher.accept(tokenId!)) throw new Error(`Walk ${seed}: token ${tokenId} is allowed and not accepted.`);
      if (!matcher.isTerminated) bytes.push(...tokenizer.tokenBytes(tokenId!));
    }
    yield Uint8Array.from(bytes);
  }
}

/** All slices at once. */
export function toProgram(language: Language): Program {
  const slices = toProgramInSlices(language);
  let slice = slices.next();
  while (slice.done !== true) slice = slices.next();
  return slice.value;
}
