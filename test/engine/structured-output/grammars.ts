/** Tokenizers with grammar compilers, and random texts within a grammar. */
import { readFile } from "node:fs/promises";

import { GrammarCompiler } from "../../../engine/structured-output/grammar-compiler.ts";
import type { CompiledGrammar } from "../../../engine/structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { readLanguage } from "../../../engine/structured-output/language.ts";
import { Recognizer } from "../../../engine/structured-output/recognizer.ts";
import { advanceText, canEnd, startText } from "../../../engine/structured-output/text-tracker.ts";
import type { TrackedText } from "../../../engine/structured-output/text-tracker.ts";
import { createTokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { LoadedGrammar } from "../../../engine/structured-output/xgrammar.ts";
import type { TokenMatcher } from "../../../engine/structured-output/xgrammar.ts";
import { parseTokenizer } from "../../../engine/text/tokenizer.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";

export interface TestVocabulary {
  readonly tokenizer: Tokenizer;
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

const repository = new URL("../../../", import.meta.url);

/** Of the checkpoint that ships with the repository: byte-level BPE. */
export const shapesVocabulary = await loadVocabulary("models/fovea-shapes/tokenizer.json", 598, "</s>");
/** Byte-level BPE; logits have more columns than there are tokens. */
export const llamaVocabulary = await loadVocabulary("test/fixtures/goldens/llama/tokenizer.json", 352, "</s>");
/** SentencePiece with byte fallback, as Llama 2 has it. */
export const byteFallbackVocabulary = await loadVocabulary("test/fixtures/tokenizers/llama2-legacy.json", 400, "</s>");

async function loadVocabulary(path: string, vocabSize: number, eosToken: string): Promise<TestVocabulary> {
  const tokenizer = parseTokenizer(await readFile(new URL(path, repository), "utf8"), "{}");
  return { tokenizer, vocabSize, eosTokenIds: [tokenizer.tokenId(eosToken)!] };
}

export function createTestCompiler(vocabulary: TestVocabulary, compileTimeoutMs?: number): GrammarCompiler {
  const { tokenizer, vocabSize, eosTokenIds } = vocabulary;
  return new GrammarCompiler({
    loadVocabulary: () => createGrammarVocabulary(tokenizer, vocabSize, eosTokenIds),
    ...(compileTimeoutMs !== undefined && { compileTimeoutMs }),
  });
}

export async function compileOnce(vocabulary: TestVocabulary, output: StructuredOutput): Promise<CompiledGrammar> {
  await using compiler = createTestCompiler(vocabulary);
  return await compiler.compile(output);
}

/** Ids in ascending order. */
export function allowedTokens(matcher: TokenMatcher, vocabSize: number): number[] {
  const bitmask = createTokenBitmask(vocabSize);
  matcher.fillBitmask(bitmask);
  const allowed: number[] = [];
  for (let id = 0; id < vocabSize; id++) if (((bitmask[id >> 5] >> (id & 31)) & 1) === 1) allowed.push(id);
  return allowed;
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

/** Tokens drawn evenly before a walk begins to prefer what closes strings, lists and objects. */
const freeTokens = 40;
const maxTokens = 2000;
const closingTexts = new Set(["}", "]", '"']);

export interface WalkOptions {
  /** Leaves out walks that go on for long instead of leading them to an end. */
  readonly skipsLong?: boolean;
  /** The grammar, where it is loaded already. */
  readonly loaded?: LoadedGrammar;
}

/**
 * The texts of random walks: evenly among the allowed tokens, to an end token. Throws for a walk that does not end, and
 * for one that the recognizer does not go along with.
 */
export function* walk(
  grammar: CompiledGrammar,
  { tokenizer, vocabSize, eosTokenIds }: TestVocabulary,
  numWalks: number,
  { skipsLong = false, loaded = new LoadedGrammar(grammar.image, grammar.vocabulary) }: WalkOptions = {},
): Iterable<Uint8Array> {
  const recognizer = new Recognizer(readLanguage(grammar.source));
  const closing = Array.from({ length: vocabSize }, (_, id) => id).filter((id) =>
    closingTexts.has(tokenizer.decode([id])),
  );
  walks: for (let seed = 1; seed <= numWalks; seed++) {
    using matcher = loaded.createMatcher();
    const random = createRandom(seed);
    const bytes: number[] = [];
    let text: TrackedText | null = startText(recognizer);
    for (let numTokens = 0; !matcher.isTerminated; numTokens++) {
      const allowed = allowedTokens(matcher, vocabSize);
      if (skipsLong && numTokens === freeTokens) continue walks;
      if (allowed.length === 0 || numTokens === maxTokens)
        throw new Error(`Walk ${seed} ends nowhere: ${bytes.length}`);
      const preferred = [...eosTokenIds, ...closing].find((id) => allowed.includes(id));
      const isHurried = numTokens > freeTokens && preferred !== undefined && random() < 0.5;
      const tokenId = isHurried ? preferred : allowed[Math.floor(random() * allowed.length)];
      if (!matcher.accept(tokenId)) throw new Error(`Walk ${seed}: token ${tokenId} is allowed and not accepted.`);
      if (canEnd(text) !== eosTokenIds.some((id) => allowed.includes(id)))
        throw new Error(`Walk ${seed}: after ${Buffer.from(bytes).toString()} the recognizer differs about the end.`);
      if (matcher.isTerminated) continue;
      bytes.push(...tokenizer.tokenBytes(tokenId));
      text = advanceText(recognizer, text, tokenizer.tokenBytes(tokenId));
      if (text === null)
        throw new Error(`Walk ${seed}: the recognizer does not go on to ${Buffer.from(bytes).toString()}.`);
    }
    yield Uint8Array.from(bytes);
  }
}
