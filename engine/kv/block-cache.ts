/** The memory of a paged KV cache. */
import { EngineError } from "../contract/errors.ts";
import type { Session } from "../runtime/session.ts";
import type { KvView } from "./kv-cache.ts";
import { allocateLayers, splitLayers, disposeAll } from "./kv-tensors.ts";
import type { KvShape } from "./memory-plan.ts";

/**
 * Keys and values of all blocks, layer by layer: [numBlocks, blockSize, numKvHeads, headDim] each. The caller disposes
 * of them.
 *
 * @throws EngineError `invalid_configuration` if the device cannot reserve the memory.
 */
export function allocateBlocks(
  session: Session,
  decoder: KvShape,
  { numBlocks, blockSize }: { readonly numBlocks: number; readonly blockSize: number },
): KvView {
  try {
    const tensors = allocateLayers(session, decoder, ({ numKvHeads, headDim }) => [
      numBlocks,
      blockSize,
      numKvHeads,
      headDim,
    ]);
    return { ...splitLayers(tensors), [Symbol.dispose]: () => disposeAll(tensors) };
  } catch (cause) {
    throw new EngineError(
      "invalid_configuration",
      `The KV cache of ${numBlocks} blocks of ${blockSize} tokens does not fit into memory. ` +
        "Lower the number of blocks if it is set, otherwise the memory of the KV cache or the GPU memory utilization.",
      { cause, setting: "gpuMemoryUtilization" },
    );
  }
}
