/** Parses the two tokenizer files of a checkpoint, as far as the engine reads them. */
import { join } from "node:path";
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
import { describeProblem, readBySchema } from "../schema-problem.ts";
import { readRegularFile } from "../weights/regular-file.ts";

const addedToken = z.object({
  id: z.int().nonnegative(),
  content: z.string(),
  single_word: z.boolean().default(false),
  lstrip: z.boolean().default(false),
  rstrip: z.boolean().default(false),
  normalized: z.boolean().optional(),
  special: z.boolean().default(false),
});

const component = z.looseObject({ type: z.string() });

/** tokenizer.json. Components keep all their fields for the tokenizer library. */
const tokenizerJson = z.looseObject({
  added_tokens: z.array(addedToken).default([]),
  normalizer: component.nullish().default(null),
  pre_tokenizer: component.nullish().default(null),
  post_processor: component.nullish().default(null),
  decoder: component.nullish().default(null),
  model: z.looseObject({ type: z.string().optional() }),
});

const tokenText = z.union([z.string(), z.object({ content: z.string() }).transform((token) => token.content)]);

const tokenizerConfig = z.looseObject({
  bos_token: tokenText.nullish().default(null),
  eos_token: tokenText.nullish().default(null),
  unk_token: tokenText.nullish().default(null),
  pad_token: tokenText.nullish().default(null),
  add_bos_token: z.boolean().nullish().default(null),
  add_eos_token: z.boolean().nullish().default(null),
  chat_template: z
    .union([z.string(), z.array(z.object({ name: z.string(), template: z.string() }))])
    .nullish()
    .default(null),
});

export type TokenizerJson = z.infer<typeof tokenizerJson>;
export type TokenizerConfig = z.infer<typeof tokenizerConfig>;
export type TokenizerComponent = z.infer<typeof component>;

/** The text of a checkpoint's file, or null if it does not exist. Throws `invalid_checkpoint` if it cannot be read. */
export async function tryReadCheckpointFile(folder: string, name: string): Promise<string | null> {
  const bytes = await readRegularFile(join(folder, name));
  return bytes === null ? null : bytes.toString("utf8");
}

/** Parses a JSON file. Throws `invalid_checkpoint` with the file's name and the invalid field. */
export function parseCheckpointJson<Schema extends z.ZodType>(
  name: string,
  text: string,
  schema: Schema,
): z.infer<Schema> {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (error) {
    const reason = describeError(error);
    throw new EngineError("invalid_checkpoint", `${name} of the checkpoint is not JSON (${reason}).`, { cause: error });
  }
  const result = readBySchema(schema, json);
  if (result.isValid) return result.value;
  throw new EngineError("invalid_checkpoint", `${name} of the checkpoint: ${describeProblem(result)}.`);
}

export function parseTokenizerJson(text: string): TokenizerJson {
  return parseCheckpointJson("tokenizer.json", text, tokenizerJson);
}

const tokensByName = z.record(z.string(), tokenText);

/**
 * Special tokens by the names that chat templates use: those of every tokenizer, and a model's own, such as `image_token`,
 * in any of the places where transformers reads them (`_set_model_specific_special_tokens`).
 */
export function namedTokensOf(config: TokenizerConfig): Readonly<Record<string, string>> {
  const ofTokenizer = Object.entries(config).filter(([name]) => name.endsWith("_token"));
  const named = new Map(
    ofTokenizer.flatMap(([name, value]): [string, string][] => {
      const token = tokenText.safeParse(value);
      return token.success ? [[name, token.data]] : [];
    }),
  );
  for (const group of [config.extra_special_tokens, config.model_specific_special_tokens]) {
    const tokens = tokensByName.safeParse(group);
    if (tokens.success) for (const [name, token] of Object.entries(tokens.data)) named.set(name, token);
  }
  return Object.fromEntries(named);
}

export function parseTokenizerConfig(text: string): TokenizerConfig {
  return parseCheckpointJson("tokenizer_config.json", text, tokenizerConfig);
}
