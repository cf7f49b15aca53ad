/** Tokens that prompts of a model cannot do without. */
import { EngineError } from "../contract/errors.ts";
import type { ProcessorContext } from "./model-definition.ts";

/** @throws EngineError `invalid_checkpoint` if the tokenizer does not have the token. */
export function requiredToken(tokenId: ProcessorContext["tokenId"], token: string): number {
  const id = tokenId(token);
  if (id !== null) return id;
  throw new EngineError(
    "invalid_checkpoint",
    `tokenizer.json has no token ${token}, which prompts with pictures need for this model.`,
  );
}
