/**
 * How images enter the prompts of each architecture that takes them; a new one adds its line. Apart from the registry of
 * definitions, so that the thread that processes prompts does not load, and keep, what builds graphs.
 */
import type { MultiModalInputs } from "../multimodal/multimodal-processor.ts";
import { fuyuInputs } from "./fuyu/processor.ts";
import { idefics3Inputs } from "./idefics3/processor.ts";
import { llavaInputs } from "./llava/processor.ts";
import type { ProcessorContext } from "./model-definition.ts";
import { qwen2VlInputs } from "./qwen2-vl/processor.ts";

const inputsByArchitecture: ReadonlyMap<string, MultiModalInputs<ProcessorContext>> = new Map([
  ["LlavaForConditionalGeneration", llavaInputs],
  ["Idefics3ForConditionalGeneration", idefics3Inputs],
  ["SmolVLMForConditionalGeneration", idefics3Inputs],
  ["FuyuForCausalLM", fuyuInputs],
  ["Qwen2VLForConditionalGeneration", qwen2VlInputs],
]);

/** Null for an architecture that takes no images. */
export function findMultiModalInputs(architecture: string): MultiModalInputs<ProcessorContext> | null {
  return inputsByArchitecture.get(architecture) ?? null;
}
