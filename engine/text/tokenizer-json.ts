/** Parses the tokenizer's files of a checkpoint, as far as the engine reads them. */
import { join } from "node:path";
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
import { describeProblem, readBySchema } from "../schema-problem.ts";
import { parsePythonJson } from "../weights/python-json.ts";
import { readRegularFile } from "../weights/regular-file.ts";

const unnumberedToken = z.object({
  content: z.string(),
  single_word: z.boolean().default(false),
  lstrip: z.boolean().default(false),
  rstrip: z.boolean().default(false),
  normalized: z.boolean().optional(),
  special: z.boolean().default(false),
});
const addedToken = z.object({ id: z.int().nonnegative(), ...unnumberedToken.shape });

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
  /** By id, in decimal digits. */
  added_tokens_decoder: z.record(z.string().regex(/^\d+$/), unnumberedToken).nullish().default(null),
  /** One, or several by their names. */
  chat_template: z
    .union([
      z.string(),
      z
        .array(z.object({ name: z.string(), template: z.string() }))
        .transform((named) => Object.fromEntries(named.map(({ name, template }) => [name, template]))),
    ])
    .nullish()
    .default(null),
});

type AddedToken = z.infer<typeof addedToken>;
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
    json = parsePythonJson(text);
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

const specialTokensMap = tokenizerConfig.pick({ bos_token: true, eos_token: true, unk_token: true, pad_token: true });

/**
 * The named tokens of special_tokens_map.json count for an older tokenizer_config.json, which does not list the added
 * tokens, as in transformers.
 *
 * @param mapText The text of special_tokens_map.json; null if there is none.
 */
export function withSpecialTokensMap(config: TokenizerConfig, mapText: string | null): TokenizerConfig {
  if (mapText === null || config.added_tokens_decoder !== null) return config;
  const named = parseCheckpointJson("special_tokens_map.json", mapText, specialTokensMap);
  const given = Object.entries(named).filter(([, token]) => token !== null);
  return { ...config, ...Object.fromEntries(given) };
}

const unlistedTokens = z.looseObject({
  extra_special_tokens: z.array(tokenText).optional().catch(undefined),
  additional_special_tokens: z.array(tokenText).optional().catch(undefined),
});

/** Special tokens that tokenizer_config.json names without saying more about them, in transformers' order. */
function unlistedTokensOf(config: TokenizerConfig): string[] {
  const { bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token, ...others } =
    namedTokensOf(config);
  const named = [bos_token, eos_token, unk_token, sep_token, pad_token, cls_token, mask_token];
  return [...named, ...Object.values(others)].filter((token) => token !== undefined && token !== "") as string[];
}

/**
 * As in transformers, tokens that only tokenizer_config.json has are added: with the ids of the vocabulary, or with the
 * next ones in the order of its ids. Its description of a token counts, and each token that it calls or names as special
 * is special.
 */
export function withConfiguredTokens(json: TokenizerJson, config: TokenizerConfig): TokenizerJson {
  const configured = Object.entries(config.added_tokens_decoder ?? {});
  const described = new Map(configured.map(([, token]) => [token.content, token]));
  const named = unlistedTokensOf(config);
  const lists = unlistedTokens.parse(config);
  const unlisted = [...named, ...(lists.extra_special_tokens ?? lists.additional_special_tokens ?? [])];
  const withDescription = (token: AddedToken): AddedToken => {
    const description = described.get(token.content);
    const isSpecial = token.special || description?.special === true || named.includes(token.content);
    return { ...token, ...description, special: isSpecial };
  };
  const tokens = json.added_tokens.map(withDescription);
  const known = new Set(tokens.map(({ content }) => content));
  const missing = [
    ...configured.sort(([left], [right]) => Number(left) - Number(right)).map(([, token]) => token),
    ...unlisted.map((content) => unnumberedToken.parse({ content, special: true })),
  ];
  const vocabulary = idsOf(json.model);
  let next = 0;
  for (const id of vocabulary.values()) next = Math.max(next, id + 1);
  for (const { id } of json.added_tokens) next = Math.max(next, id + 1);
  for (const token of missing) {
    if (token.content === "" || known.has(token.content)) continue;
    known.add(token.content);
    tokens.push({ ...token, id: vocabulary.get(token.content) ?? next++ });
  }
  return { ...json, added_tokens: tokens };
}

/** The tokens of a model, which are a list of pairs of token and score (Unigram), or the names of an object. */
export function vocabularyOf(model: object): string[] {
  const { vocab = {} } = model as { readonly vocab?: object };
  return Array.isArray(vocab) ? vocab.map(([token]: [string]) => token) : Object.keys(vocab);
}

function idsOf(model: object): ReadonlyMap<string, number> {
  const { vocab = {} } = model as { readonly vocab?: object };
  if (Array.isArray(vocab)) return new Map(vocab.map(([token]: [string], id) => [token, id]));
  return new Map(Object.entries(vocab as Record<string, number>));
}
