/** Names of request fields as the client spelled them. */

const wireNames: Readonly<Record<string, string>> = {
  topP: "top_p",
  topK: "top_k",
  minP: "min_p",
  presencePenalty: "presence_penalty",
  frequencyPenalty: "frequency_penalty",
  repetitionPenalty: "repetition_penalty",
  logitBias: "logit_bias",
  allowedTokenIds: "allowed_token_ids",
  badWords: "bad_words",
  promptLogprobs: "prompt_logprobs",
  numChoices: "n",
  truncatePromptTokens: "truncate_prompt_tokens",
  templateArguments: "chat_template_kwargs",
  maxTokens: "max_tokens",
  minTokens: "min_tokens",
  stopTokenIds: "stop_token_ids",
  includeStopStringInOutput: "include_stop_str_in_output",
  ignoreEos: "ignore_eos",
  skipSpecialTokens: "skip_special_tokens",
  extraArgs: "vllm_xargs",
  repetitionDetection: "repetition_detection",
  maxPatternSize: "max_pattern_size",
  minPatternSize: "min_pattern_size",
  minCount: "min_count",
  videoSampling: "media_io_kwargs.video",
  numFrames: "num_frames",
  framesPerSecond: "fps",
  documentPages: "media_io_kwargs.document",
  firstPage: "first_page",
  lastPage: "last_page",
};

/** Paths in the body of values that several fields can contain. */
export interface RequestPaths {
  /** `messages` or `prompt`. */
  readonly prompt: string;
  /** Paths of all images, in order. */
  readonly images: readonly string[];
  /** Paths of all videos, in order. */
  readonly videos: readonly string[];
  /** Paths of all documents, in order. */
  readonly documents: readonly string[];
  /** `response_format`, `structured_outputs` or `tools`. */
  readonly structuredOutput: string;
  /** By the engine's name: fields that only this request calls by another name. */
  readonly names?: Readonly<Record<string, string>>;
  /** For a request that is converted to a chat completion: replaces paths of a chat completion in an error by its own. */
  rename?(text: string): string;
}

/**
 * Translates the engine's name of a field to the wire's: `samplingParams.topP` is `top_p`, `prompt` is the field that
 * contains it, `prompt.images[1]` the path of the prompt's second image, `prompt.videos[0]` that of its first video, and so for documents.
 */
export function toWireParameter(parameter: string, paths: RequestPaths): string {
  const item = /^prompt\.(images|videos|documents)\[(\d+)\]$/.exec(parameter);
  if (item !== null) return paths[item[1] as "images" | "videos" | "documents"][Number(item[2])] ?? paths.prompt;
  if (/^prompt\b/.test(parameter)) return paths.prompt;
  if (parameter === "samplingParams.structuredOutput") return paths.structuredOutput;
  // The rest of the path consists of the client's own names.
  if (parameter.startsWith("mmProcessorOptions")) return parameter.replace("mmProcessorOptions", "mm_processor_kwargs");
  const name = parameter.replace(/^samplingParams\./, "");
  return ownValue(paths.names ?? {}, name) ?? toWireWords(name, paths);
}

/**
 * Replaces the engine's names of fields in a text by the wire's. The search begins only where a run of letters does, so
 * that it takes time linear in the text, which may quote a schema of the request.
 */
export function toWireWords(text: string, { names = {} }: Pick<RequestPaths, "names"> = {}): string {
  return text.replace(
    /(?<![a-z])[a-z]+[A-Z]\w*/g,
    (word) => ownValue(names, word) ?? ownValue(wireNames, word) ?? word,
  );
}

/** The text may contain any word of the client, such as `hasOwnProperty`. */
function ownValue(names: Readonly<Record<string, string>>, word: string): string | undefined {
  return Object.hasOwn(names, word) ? names[word] : undefined;
}

/** Names in a path may be chosen by the client. */
const MAX_KEY_LENGTH = 100;

/** A path within the request body: `["messages", 0, "content"]` is `messages[0].content`. Long names are shortened. */
export function formatPath(path: readonly PropertyKey[]): string {
  let formatted = "";
  for (const key of path) {
    if (typeof key === "number") formatted += `[${key}]`;
    else formatted += formatted === "" ? shorten(String(key)) : `.${shorten(String(key))}`;
  }
  return formatted;
}

function shorten(key: string): string {
  return key.length > MAX_KEY_LENGTH ? `${key.slice(0, MAX_KEY_LENGTH)}…` : key;
}
