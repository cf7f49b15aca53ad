/** Errors of requests, and of those that render a prompt or decode tokens. */
import { MAX_COUNTED_TOKENS } from "../contract/default-limits.ts";
import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";

/** The error of a request: an `internal` one for what the engine's own code did not expect. */
export function toRequestError(error: unknown): EngineError {
  if (error instanceof EngineError) return error;
  return new EngineError("internal", `The request failed: ${describeError(error)}.`, { cause: error });
}

/** The limit is not the model's: its message names the prompt's tokens first, and then the limit. */
export function aboutCounting(error: EngineError): EngineError {
  if (error.code !== "prompt_too_long") return error;
  const [numTokens] = error.message.split(";", 1);
  const message = `${numTokens}; prompts that are longer than the model length are counted up to ${MAX_COUNTED_TOKENS} tokens.`;
  return new EngineError("prompt_too_long", message, { parameter: "prompt", cause: error });
}

/** Throws EngineError `invalid_argument` that names the first id outside the vocabulary. */
export function checkTokenIds(tokenIds: readonly number[], vocabSize: number): void {
  const index = tokenIds.findIndex((tokenId) => !Number.isInteger(tokenId) || tokenId < 0 || tokenId >= vocabSize);
  if (index === -1) return;
  throw new EngineError(
    "invalid_argument",
    `Token id ${tokenIds[index]} is outside the vocabulary, whose size is ${vocabSize}.`,
    { parameter: `tokens[${index}]` },
  );
}
