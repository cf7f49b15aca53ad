/** Tokenizers with grammar compilers, and random texts within a grammar. */
import { readFile } from "node:fs/promises";

import { GrammarCompiler } from "../../engine/structured-output/grammar-compiler.ts";
import type { CompiledGrammar } from "../../engine/structured-output/grammar-compiler.ts";
import { createGrammarVocabulary } from "../../engine/structured-output/grammar-vocabulary.ts";
import { createTokenBitmask } from "../../engine/structured-output/token-bitmask.ts";
import type { StructuredOutput } from "../../engine/structured-output/structured-output.ts";
import { LoadedGrammar } from "../../engine/structured-output/xgrammar.ts";
import type { TokenMatcher } from "../../engine/structured-output/xgrammar.ts";
import { parseTokenizer } from "../../engine/text/tokenizer.ts";
import type { Tokenizer } from "../../engine/text/tokenizer.ts";

export interface TestVocabulary {
  readonly tokenizer: Tokenizer;
  readonly vocabSize: number;
  readonly eosTokenIds: readonly number[];
}

const repository = new URL("../../", import.meta.url);

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

/** The texts of random walks: evenly among the allowed tokens, to an end token. Throws for a walk that does not end. */
export function* walk(
  grammar: CompiledGrammar,
  { tokenizer, vocabSize, eosTokenIds }: TestVocabulary,
  numWalks: number,
): Iterable<Uint8Array> {
  const loaded = new LoadedGrammar(grammar.image, grammar.vocabulary);
  const closing = Array.from({ length: vocabSize }, (_, id) => id).filter((id) =>
    closingTexts.has(tokenizer.decode([id])),
  );
  for (let seed = 1; seed <= numWalks; seed++) {
    using matcher = loaded.createMatcher();
    const random = createRandom(seed);
    const bytes: number[] = [];
    for (let numTokens = 0; !matcher.isTerminated; numTokens++) {
      const allowed = allowedTokens(matcher, vocabSize);
      if (allowed.length === 0 || numTokens === maxTokens)
        throw new Error(`Walk ${seed} ends nowhere: ${bytes.length}`);
      const preferred = [...eosTokenIds, ...closing].find((id) => allowed.includes(id));
      const isHurried = numTokens > freeTokens && preferred !== undefined && random() < 0.5;
      const tokenId = isHurried ? preferred : allowed[Math.floor(random() * allowed.length)];
      if (!matcher.accept(tokenId)) throw new Error(`Walk ${seed}: token ${tokenId} is allowed and not accepted.`);
      if (!matcher.isTerminated) bytes.push(...tokenizer.tokenBytes(tokenId));
    }
    yield Uint8Array.from(bytes);
  }
}
