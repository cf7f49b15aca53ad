/**
 * Wire fields of decoding that chat and plain completions share. Types are checked here, ranges by the engine's
 * `createSamplingParams`, whose errors are answered with the wire's names.
 */
import { z } from "zod";

const finite = z.number({
  error: ({ input }) => (typeof input === "number" ? "must be a finite number" : "must be a number"),
});

/** Of any size: clients send 1e9 tokens and 64-bit seeds. */
export const wholeNumber = finite.refine(Number.isInteger, "must be a whole number");

export const tokenId = wholeNumber.refine((id) => id >= 0, "must be a token id, 0 or more");

export const flag = z.boolean("must be true or false");

/** Each string is looked for after every token. */
const MAX_STOP_STRINGS = 64;
const MAX_STOP_TOKEN_IDS = 1024;

const extraArgumentRule = "must be a string, number or boolean, or a list of those";
const extraArgument = z.union([z.string(), finite, z.boolean()], extraArgumentRule);

export const samplingFields = {
  model: z.string("must be a string").nullish(),
  temperature: finite.nullish(),
  top_p: finite.nullish(),
  top_k: wholeNumber.nullish(),
  min_p: finite.nullish(),
  seed: wholeNumber.nullish(),
  max_tokens: wholeNumber.nullish(),
  min_tokens: wholeNumber.nullish(),
  stop: z
    .union(
      [z.string().transform((text) => [text]), z.array(z.string("must be a string"))],
      "must be a string or a list",
    )
    .refine((strings) => strings.length <= MAX_STOP_STRINGS, `can hold at most ${MAX_STOP_STRINGS} strings`)
    .nullish(),
  stop_token_ids: z
    .array(tokenId, "must be a list of token ids")
    .max(MAX_STOP_TOKEN_IDS, `can hold at most ${MAX_STOP_TOKEN_IDS} ids`)
    .nullish(),
  ignore_eos: flag.nullish(),
  include_stop_str_in_output: flag.nullish(),
  skip_special_tokens: flag.nullish(),
  add_special_tokens: flag.nullish(),
  stream: flag.nullish(),
  stream_options: z
    .object({ include_usage: flag.nullish(), continuous_usage_stats: flag.nullish() }, "must be an object")
    .nullish(),
  vllm_xargs: z
    .record(z.string(), z.union([extraArgument, z.array(extraArgument)], extraArgumentRule), "must be an object")
    .nullish(),
};

interface StreamFields {
  readonly stream?: boolean | null | undefined;
  readonly stream_options?: object | null | undefined;
}

export function checkStreamOptions({ stream, stream_options }: StreamFields, context: z.RefinementCtx): void {
  if (stream_options && stream !== true) {
    addIssue(context, "stream_options", "can only be given when stream is true");
  }
}

export function addIssue(context: z.RefinementCtx, field: string, message: string): void {
  context.addIssue({ code: "custom", path: [field], message });
}
