/** The recorded tokenizers of test/fixtures/tokenizers, one per family of checkpoints. */
import { readFile } from "node:fs/promises";

import { parseTokenizer } from "../../../engine/text/tokenizer.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";

export const fixtureFamilies = [
  "gpt2",
  "llama2-legacy",
  "llama2-metaspace",
  "llama3",
  "qwen2",
  "starcoder",
  "tekken",
] as const;

export type FixtureFamily = (typeof fixtureFamilies)[number];

export interface TokenizerCase {
  readonly text: string;
  readonly ids: readonly number[];
  readonly idsWithSpecial: readonly number[];
  readonly decoded: string;
  /** The text of `idsWithSpecial`. */
  readonly decodedWithSpecial: string;
}

const folder = new URL("../../fixtures/tokenizers/", import.meta.url);

/** `changes` replace parts of tokenizer.json. */
export async function loadFixtureTokenizer(
  family: FixtureFamily,
  config: Readonly<Record<string, unknown>> = {},
  changes: Readonly<Record<string, unknown>> = {},
): Promise<Tokenizer> {
  const settings = { bos_token: "<s>", eos_token: "</s>", ...config };
  const json = JSON.parse(await readFile(new URL(`${family}.json`, folder), "utf8")) as object;
  return parseTokenizer(JSON.stringify({ ...json, ...changes }), JSON.stringify(settings));
}

export async function readCases(family: FixtureFamily): Promise<TokenizerCase[]> {
  return JSON.parse(await readFile(new URL(`${family}.cases.json`, folder), "utf8"));
}
