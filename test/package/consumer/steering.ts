/** A logits processor as a user of the package writes it: TypeScript, in the user's folder. */
import { LogitsProcessor, RequestLogitsProcessorAdapter } from "fovea";
import type { BatchUpdate, Logits, RequestLogitsProcessor, SamplingParams } from "fovea";

/** Makes requests with the argument `only_token` repeat that token. */
export class OnlyToken extends RequestLogitsProcessorAdapter {
  /** Lets a program give the class to `createEngine`. */
  static readonly moduleUrl = import.meta.url;

  static override validateParams({ extraArgs }: SamplingParams): void {
    const { only_token: tokenId } = extraArgs;
    if (tokenId !== undefined && !Number.isInteger(tokenId)) throw new Error("only_token must be a token id.");
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ extraArgs }: SamplingParams): RequestLogitsProcessor | null {
    const tokenId = extraArgs.only_token;
    if (typeof tokenId !== "number") return null;
    return (_outputTokenIds: readonly number[], row: Float32Array) => row.fill(-Infinity).fill(0, tokenId, tokenId + 1);
  }
}

/** Does nothing, but implements the whole contract. */
export class Idle extends LogitsProcessor {
  override isArgmaxInvariant(): boolean {
    return true;
  }
  override updateState(_batchUpdate: BatchUpdate | null): void {}
  override apply(logits: Logits): Logits {
    return logits;
  }
}
