/** The tokenizer as placeholders in text need it. */
import { invariant } from "../contract/errors.ts";
import type { PromptText } from "../multimodal/prompt-text.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

export function createPromptText(tokenizer: Tokenizer, signal?: AbortSignal): PromptText {
  return {
    decode: (tokenIds) => tokenizer.decode(tokenIds),
    encode: async (text) => {
      const tokenIds = await tokenizer.encode(text, { addSpecialTokens: false, ...(signal && { signal }) });
      invariant(tokenIds !== null, "an encoding without a limit is complete");
      return tokenIds;
    },
  };
}
