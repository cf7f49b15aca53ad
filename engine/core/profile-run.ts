/**
 * The largest runs of a model, before its KV cache is planned. They make ONNX Runtime allocate the memory that later runs
 * reuse, so that what is free afterwards is free for good. vLLM does the same (`determine_available_memory` of its GPU
 * worker).
 */
import { EngineError } from "../contract/errors.ts";
import { numEmbeddingsOf } from "../multimodal/placeholder.ts";
import type { FeaturePool } from "../vision/feature-pool.ts";
import type { VisionEncoder } from "../vision/vision-encoder.ts";
import { imageOfOutline } from "./image-outline.ts";
import type { ImageOutline } from "./image-outline.ts";
import { encodeInto } from "./step-images.ts";

/**
 * Encodes an image of this outline, as a step would.
 *
 * @throws EngineError `out_of_memory` that names the image if the device has no memory for it.
 */
export function encodeLargestImage(
  visionEncoder: VisionEncoder,
  outline: ImageOutline,
  pool: FeaturePool | null,
): void {
  const image = imageOfOutline(outline);
  explainNoMemory(
    `an image of ${numEmbeddingsOf(image)} embeddings, the largest one. Expect smaller images, or encode them on the CPU.`,
    "largestExpectedImage",
    () => {
      const embeddings = encodeInto(pool, image, visionEncoder);
      if ("firstRow" in embeddings) pool?.release(embeddings);
    },
  );
}

/**
 * @param run Computes the largest step.
 * @throws EngineError `out_of_memory` that names the step if the device has no memory for it.
 */
export function runLargestStep(
  { maxNumBatchedTokens, maxNumSequences }: { readonly maxNumBatchedTokens: number; readonly maxNumSequences: number },
  run: () => void,
): void {
  explainNoMemory(
    `a step of ${maxNumBatchedTokens} tokens and ${maxNumSequences} sequences. Lower one of these limits.`,
    "maxNumBatchedTokens",
    run,
  );
}

/** @param what Continues a sentence, and gives advice. */
function explainNoMemory(what: string, setting: "largestExpectedImage" | "maxNumBatchedTokens", run: () => void): void {
  try {
    run();
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== "out_of_memory") throw error;
    const message = `Beside the weights, the device has no memory for ${what} ${error.message}`;
    throw new EngineError("out_of_memory", message, { cause: error, setting });
  }
}
