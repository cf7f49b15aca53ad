/**
 * Fields of other services and of earlier versions, which no schema has. Those that would change the answer but are not
 * supported are rejected by name, never silently ignored. Values without an effect (null, the field's off value) are
 * accepted, because clients send them by default. Old names of a supported field are translated.
 */
import { HttpError } from "../../http/errors.ts";

type AsksForNothing = (value: unknown) => boolean;

const never: AsksForNothing = () => false;
const equals =
  (...values: readonly unknown[]): AsksForNothing =>
  (value) =>
    values.includes(value);
const isEmpty: AsksForNothing = (value) => {
  if (Array.isArray(value)) return value.length === 0;
  return typeof value === "object" && value !== null && Object.keys(value).length === 0;
};

/** By name: which values of the field have no effect. */
export type UnservedFields = Readonly<Record<string, AsksForNothing>>;

/** Of text-generation-webui, llama.cpp and SGLang, each with the values that turn it off. */
const samplersOfOthers: UnservedFields = {
  typical_p: equals(1),
  typical: equals(1),
  tfs: equals(1),
  tfs_z: equals(1),
  top_a: equals(0),
  top_n_sigma: (value) => typeof value === "number" && value <= 0,
  epsilon_cutoff: equals(0),
  eta_cutoff: equals(0),
  smoothing_factor: equals(0),
  dynamic_temperature: equals(false),
  dynatemp_range: equals(0),
  mirostat: equals(0),
  mirostat_mode: equals(0),
  dry_multiplier: equals(0),
  xtc_probability: equals(0),
  penalty_alpha: equals(0),
  guidance_scale: equals(1),
  negative_prompt: equals(""),
  encoder_repetition_penalty: equals(1),
  repeat_penalty: equals(1),
  no_repeat_ngram_size: equals(0),
  custom_token_bans: equals(""),
  ban_eos_token: equals(false),
  grammar_string: equals(""),
  grammar: equals(""),
  json_schema: isEmpty,
  regex: equals(""),
  ebnf: equals(""),
};

const unservedEverywhere: UnservedFields = {
  ...samplersOfOthers,
  best_of: equals(1),
  use_beam_search: equals(false),
  logprob_token_ids: isEmpty,
  guided_whitespace_pattern: never,
  spaces_between_special_tokens: equals(true),
  logits_processors: isEmpty,
  // Names of arguments in vLLM's and SGLang's Python, where these are fields of a request.
  extra_args: isEmpty,
  custom_params: isEmpty,
  custom_logit_processor: never,
  multi_modal_data: isEmpty,
  multi_modal_uuids: isEmpty,
  image_data: isEmpty,
  // OpenAI's client for Python puts the content of its parameter into the body.
  extra_body: isEmpty,
};

const noStore = "the service stores no answers, so send the whole conversation";

/** Codes that make a client send the request in another form; the others have `unsupported_field`. */
const codes: Readonly<Record<string, string>> = {
  // Anthropic's clients repeat the request with the whole conversation.
  thread: "thread_not_found",
};

const processorAdvice = "the processors of LOGITS_PROCESSORS take their arguments from vllm_xargs";
const imageAdvice = "send images as parts of a message or in images of a text completion";

const tokenIdsAdvice = "chat and text completions have it";

/** The field to send instead. */
const advice: Readonly<Record<string, string>> = {
  return_token_ids: tokenIdsAdvice,
  return_tokens_as_token_ids: tokenIdsAdvice,
  best_of: "n returns that many choices, without ranking them",
  grammar_string: 'send structured_outputs: {"grammar": …} instead',
  grammar: 'send structured_outputs: {"grammar": …} instead',
  ebnf: 'send structured_outputs: {"grammar": …} instead',
  regex: 'send structured_outputs: {"regex": …} instead',
  json_schema: 'send structured_outputs: {"json": …} instead',
  repeat_penalty: "send repetition_penalty instead",
  no_repeat_ngram_size: "send it in vllm_xargs instead",
  custom_token_bans: "send bad_words or logit_bias instead",
  ban_eos_token: "send ignore_eos instead",
  functions: "send tools instead",
  function_call: "send tool_choice instead",
  previous_response_id: `${noStore} in input`,
  conversation: `${noStore} in input`,
  background: "every answer is sent to the client that waits for it; use /v1/batches for work without a waiting client",
  prompt: "the service has no prompt templates; send instructions and input",
  moderation: "the service has no moderation; leave it out",
  mcp_servers:
    "the service calls no tools itself; connect to the servers in the client and send their functions as tools",
  thread: "the service stores no conversations, so send all messages",
  logits_processors: processorAdvice,
  extra_args: processorAdvice,
  custom_params: processorAdvice,
  custom_logit_processor: processorAdvice,
  multi_modal_data: imageAdvice,
  multi_modal_uuids: imageAdvice,
  image_data: imageAdvice,
  images: "send images as parts of a message",
  truncate_prompt_tokens: "send shorter texts",
  max_tokens_per_doc: "send shorter documents",
  max_tokens_per_query: "send a shorter query",
  max_chunks_per_doc: "send shorter documents",
  extra_body: "send its fields in the body itself",
};

export const unservedInChat: UnservedFields = {
  ...unservedEverywhere,
  echo: equals(false),
  functions: isEmpty,
  function_call: equals("none", "auto"),
  chat_template: never,
  documents: isEmpty,
  images: isEmpty,
  prompt_embeds: never,
  audio: never,
  modalities: (value) => Array.isArray(value) && value.every((modality) => modality === "text"),
};

export const unservedInCompletions: UnservedFields = {
  ...unservedEverywhere,
  suffix: equals(""),
  thinking_token_budget: never,
  prompt_embeds: never,
};

/** Of vLLM's chat and text completions: the forms of other answers have no place for ids. */
const tokenIdsOfAnswers: UnservedFields = {
  return_token_ids: equals(false),
  return_tokens_as_token_ids: equals(false),
};

export const unservedInResponses: UnservedFields = {
  ...unservedEverywhere,
  ...tokenIdsOfAnswers,
  previous_response_id: never,
  conversation: never,
  background: equals(false),
  prompt: never,
  moderation: never,
};

export const unservedInMessages: UnservedFields = {
  ...unservedEverywhere,
  ...tokenIdsOfAnswers,
  container: never,
  mcp_servers: isEmpty,
  // A thread begins with a whole conversation, which needs no store.
  thread: (value) => typeof value === "object" && value !== null && "type" in value && value.type === "create",
};

export const unservedInEmbeddings: UnservedFields = {
  stream: equals(false),
  chat_template: never,
  // Of vLLM: the numbers are little-endian float32.
  embed_dtype: equals("float32"),
  endianness: equals("native", "little"),
};

export const unservedInScores: UnservedFields = {
  stream: equals(false),
  chat_template: never,
  // They would cut the ends of prompts, where the question is asked.
  truncate_prompt_tokens: never,
  max_tokens_per_doc: never,
  max_tokens_per_query: never,
  max_chunks_per_doc: never,
};

/** Throws a 400 that names the first such field. */
export function refuseUnservedFields(body: object, unserved: UnservedFields): void {
  for (const [field, value] of Object.entries(body)) {
    if (value === null || !Object.hasOwn(unserved, field) || unserved[field]!(value)) continue;
    throw new HttpError(
      400,
      codes[field] ?? "unsupported_field",
      `${field} is not supported by this service; ${advice[field] ?? "leave it out"}.`,
      {
        parameter: field,
      },
    );
  }
}

/** Names that `structured_outputs` had in vLLM until 0.11. Clients pinned to it, such as olmOCR, send them. */
const guidedFields = {
  guided_json: "json",
  guided_regex: "regex",
  guided_choice: "choice",
  guided_grammar: "grammar",
} as const;

/**
 * The body with `structured_outputs` in place of such fields.
 *
 * @throws HttpError 400 for a body that has both.
 */
export function withStructuredOutputs(body: object): object {
  const given = Object.entries(guidedFields).filter(([field]) => valueOf(body, field) !== null);
  const [first] = given;
  if (first === undefined) return body;
  if (valueOf(body, "structured_outputs") !== null) {
    const [field] = first;
    const message = `${field} cannot be combined with structured_outputs, which is its newer name.`;
    throw new HttpError(400, "invalid_value", message, { parameter: field });
  }
  const outputs = Object.fromEntries(given.map(([field, name]) => [name, valueOf(body, field)]));
  return { ...body, structured_outputs: outputs };
}

function valueOf(body: object, field: string): unknown {
  return Object.hasOwn(body, field) ? (body[field as keyof typeof body] ?? null) : null;
}
