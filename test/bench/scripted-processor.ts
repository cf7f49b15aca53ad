/** Makes a random model give a chosen answer, so that a bench decides how much of it repeats the prompt. */
import { RequestLogitsProcessorAdapter } from "../../engine/index.ts";
import type { RequestLogitsProcessor, SamplingParams } from "../../engine/index.ts";

export class Scripted extends RequestLogitsProcessorAdapter {
  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({ extraArgs }: SamplingParams): RequestLogitsProcessor | null {
    const { script } = extraArgs;
    if (!Array.isArray(script)) return null;
    return (outputTokenIds: readonly number[], row: Float32Array) => {
      row.fill(-Infinity)[Number(script[outputTokenIds.length])] = 0;
      return row;
    };
  }
}
