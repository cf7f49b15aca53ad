/** Reads the sampling defaults, end tokens and suppressed tokens from a checkpoint's generation_config.json. */
import { z } from "zod";

import { EngineError } from "../contract/errors.ts";
import { createSamplingParams } from "../contract/sampling-params.ts";
import type { SamplingParams } from "../contract/sampling-params.ts";
import { describeProblem, readBySchema } from "../schema-problem.ts";

// Some files have -1 for no token.
const tokenIds = z.union([z.int(), z.array(z.int())]).transform((ids) => (typeof ids === "number" ? [ids] : ids));

const generationConfig = z.looseObject({
  do_sample: z.boolean().nullish(),
  temperature: z.number().nullish(),
  top_p: z.number().nullish(),
  top_k: z.int().nullish(),
  min_p: z.number().nullish(),
  repetition_penalty: z.number().nullish(),
  eos_token_id: tokenIds.nullish(),
  suppress_tokens: z.array(z.int()).nullish(),
  begin_suppress_tokens: z.array(z.int()).nullish(),
  bad_words_ids: z.array(z.array(z.int())).nullish(),
});

/** config.json has the end token at its top level or, for a vision-language model, in its text part. */
const modelConfig = z.looseObject({
  eos_token_id: tokenIds.nullish(),
  text_config: z.looseObject({ eos_token_id: tokenIds.nullish() }).nullish(),
});

export interface GenerationDefaults {
  /** Used for fields that a request leaves open. Greedy if the checkpoint disables sampling. */
  readonly samplingParams: Partial<SamplingParams>;
  /** Each of them ends a text: those of generation_config.json (else config.json) and the tokenizer's. */
  readonly eosTokenIds: readonly number[];
  /** Never generated, such as the markers of pictures of Gemma 4, which its decoder may rank first. */
  readonly suppressedTokenIds: readonly number[];
  /** Never generated in this order: `bad_words_ids`, in which a token may stand alone. */
  readonly suppressedSequences: readonly (readonly number[])[];
  /** Never the first token that is generated. */
  readonly beginSuppressedTokenIds: readonly number[];
}

export interface CheckpointSettings {
  /** generation_config.json, parsed as JSON; null if absent. */
  readonly generationConfig: unknown;
  readonly modelConfig: unknown;
  readonly tokenizerEosTokenId: number | null;
  /** Length of a row of logits. Tokens that are not in it cannot be generated, and are left out. */
  readonly vocabSize: number;
}

/** Throws EngineError `invalid_checkpoint` that names the field. */
export function readGenerationDefaults(settings: CheckpointSettings): GenerationDefaults {
  const generation = parse("generation_config.json", generationConfig, settings.generationConfig ?? {});
  const model = parse("config.json", modelConfig, settings.modelConfig);
  const modelEos = model.eos_token_id ?? model.text_config?.eos_token_id ?? [];
  const tokenizerEos = settings.tokenizerEosTokenId === null ? [] : [settings.tokenizerEosTokenId];
  const isKnown = (tokenId: number): boolean => tokenId >= 0 && tokenId < settings.vocabSize;
  const known = (ids: readonly number[]): number[] => [...new Set(ids)].filter(isKnown);
  const eosTokenIds = known([...(generation.eos_token_id ?? modelEos), ...tokenizerEos]);
  const suppressedTokenIds = known(generation.suppress_tokens ?? []);
  const beginSuppressedTokenIds = known(generation.begin_suppress_tokens ?? []);
  // Like transformers, which keeps end tokens that stand alone.
  const isEnd = ([tokenId, ...others]: readonly number[]): boolean =>
    others.length === 0 && tokenId !== undefined && eosTokenIds.includes(tokenId);
  const suppressedSequences = (generation.bad_words_ids ?? []).filter(
    (sequence) => sequence.length > 0 && sequence.every(isKnown) && !isEnd(sequence),
  );
  const { do_sample: doesSample, temperature, top_p: topP, top_k: topK, min_p: minP } = generation;
  const repetitionPenalty = generation.repetition_penalty;
  const given = { temperature: doesSample === false ? 0 : temperature, topP, topK, minP, repetitionPenalty };
  const samplingParams = Object.fromEntries(
    Object.entries(given).filter(([, value]) => value !== null && value !== undefined),
  );
  try {
    createSamplingParams(samplingParams);
  } catch (cause) {
    const reason = cause instanceof EngineError ? cause.message : String(cause);
    throw new EngineError("invalid_checkpoint", `generation_config.json of the checkpoint: ${reason}`, { cause });
  }
  return { samplingParams, eosTokenIds, suppressedTokenIds, suppressedSequences, beginSuppressedTokenIds };
}

function parse<Schema extends z.ZodType>(file: string, schema: Schema, json: unknown): z.infer<Schema> {
  const result = readBySchema(schema, json);
  if (result.isValid) return result.value;
  throw new EngineError("invalid_checkpoint", `${file} of the checkpoint: ${describeProblem(result)}.`);
}
