/** Chooses the inputs of a decoder graph by KV layout and device. */
import type { GraphContext } from "../graph-context.ts";
import { createCudaPagedInputs } from "./cuda-paged-inputs.ts";
import type { DecoderInputs } from "./decoder-inputs.ts";
import { createReferencePagedInputs } from "./reference-paged-inputs.ts";
import { createSlotInputs } from "./slot-inputs.ts";

/** Adds the inputs of `DecoderGraph` to the graph, in the form for the context's KV layout and device. */
export function createDecoderInputs(context: GraphContext): DecoderInputs {
  const { kvLayout, device } = context;
  if (kvLayout.kind === "slots") return createSlotInputs(context);
  return device === "cuda"
    ? createCudaPagedInputs(context, kvLayout.blockSize)
    : createReferencePagedInputs(context, kvLayout.blockSize);
}
