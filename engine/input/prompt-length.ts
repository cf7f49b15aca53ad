/** Rejects prompts that are longer than the model's context. */
import { EngineError } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import { endTokenOf, type PlaceholderRange } from "../multimodal/placeholder.ts";
import type { PromptPositions } from "../multimodal/prompt-positions.ts";
import type { ItemPart } from "./prompt-parts.ts";
import type { FramesPart } from "./video-loader.ts";

/** Of `PromptPositions.axes`. */
const NUM_AXES = 3;

/** LiteLLM and other clients recognise the error by OpenAI's words "this model's maximum context length is". */
export function promptTooLong(numTokens: string, maxModelLen: number, parts: readonly ItemPart[] = []): EngineError {
  const numFrames = countFrames(parts, "video");
  const numPages = countFrames(parts, "document");
  const advice =
    (numFrames === 0 ? "" : ` It shows ${numFrames} frames of videos; ask for fewer.`) +
    (numPages === 0 ? "" : ` It shows ${numPages} pages of documents; ask for fewer, or for a lower resolution.`);
  return new EngineError(
    "prompt_too_long",
    `The prompt has ${numTokens} tokens; this model's maximum context length is ${maxModelLen} tokens, of which the output needs one.${advice}`,
    { parameter: "prompt" },
  );
}

/**
 * @param parts Whose frames and pages are counted in the error.
 * @throws EngineError `prompt_too_long`.
 */
export function checkLength(numTokens: number, maxModelLen: number, parts: readonly ItemPart[] = []): void {
  // One position is for the output.
  if (numTokens >= maxModelLen) throw promptTooLong(String(numTokens), maxModelLen, parts);
}

/**
 * Seconds of a video may be more positions than it has tokens.
 *
 * @throws EngineError `prompt_too_long`, and `internal` for what are no positions of `numTokens` tokens.
 */
export function checkPositions({ axes, next }: PromptPositions, numTokens: number, maxModelLen: number): void {
  if (!(axes instanceof Int32Array) || axes.length !== NUM_AXES * numTokens || !Number.isSafeInteger(next)) {
    const given = axes instanceof Int32Array ? `${axes.length} positions` : shown(axes);
    throw new EngineError(
      "internal",
      `The model's promptPositions returned ${given} as axes, and ${shown(next)} as next, for ${numTokens} tokens; ` +
        `expected an Int32Array of ${NUM_AXES} positions for each, and an integer.`,
    );
  }
  if (next < maxModelLen) return;
  throw new EngineError(
    "prompt_too_long",
    `The prompt takes ${next} positions, because each second of its videos takes some; this model's maximum context length is ${maxModelLen} positions, of which the output needs one. Send shorter videos.`,
    { parameter: "prompt" },
  );
}

/**
 * For models that compute all images of a prompt in one step.
 *
 * @throws EngineError `prompt_too_long`.
 */
export function checkJoinedImages(
  images: readonly { readonly placeholder: PlaceholderRange }[],
  maxTokens: number,
): void {
  const [first] = images;
  const last = images.at(-1);
  if (first === undefined || last === undefined) return;
  const numTokens = endTokenOf(last) - first.placeholder.offset;
  if (numTokens <= maxTokens) return;
  throw new EngineError(
    "prompt_too_long",
    `This model computes all images of a prompt in one step; they have ${numTokens} tokens with the text between them, and a step has room for ${maxTokens}. Send fewer or smaller images.`,
    { parameter: "prompt", setting: "maxNumBatchedTokens" },
  );
}

function countFrames(parts: readonly ItemPart[], origin: FramesPart["origin"]): number {
  return parts.reduce(
    (sum, part) => sum + (part.type === "frames" && part.origin === origin ? part.frameIndices.length : 0),
    0,
  );
}
