/** Names of request fields as the client spelled them. */

const wireNames: Readonly<Record<string, string>> = {
  topP: "top_p",
  topK: "top_k",
  minP: "min_p",
  maxTokens: "max_tokens",
  minTokens: "min_tokens",
  stopTokenIds: "stop_token_ids",
  includeStopStringInOutput: "include_stop_str_in_output",
  ignoreEos: "ignore_eos",
  skipSpecialTokens: "skip_special_tokens",
  extraArgs: "vllm_xargs",
  reference: "image_url.url",
};

/**
 * From the engine's spelling of a field to the wire's: `samplingParams.topP` is `top_p`,
 * `prompt.messages[1].content[0].reference` is `messages[1].content[0].image_url.url`.
 */
export function toWireParameter(parameter: string): string {
  const path = parameter.replace(/^samplingParams\./, "").replace(/^prompt\.messages/, "messages");
  return path.startsWith("prompt.") ? "prompt" : toWireWords(path);
}

/** Replaces the engine's names of fields in a text by the wire's. */
export function toWireWords(text: string): string {
  return text.replace(/[a-z]+[A-Z]\w*|\breference\b/g, (word) => wireNames[word] ?? word);
}

/** A path within the request body: `["messages", 0, "content"]` is `messages[0].content`. */
export function formatPath(path: readonly PropertyKey[]): string {
  let formatted = "";
  for (const key of path) {
    if (typeof key === "number") formatted += `[${key}]`;
    else formatted += formatted === "" ? String(key) : `.${String(key)}`;
  }
  return formatted;
}
