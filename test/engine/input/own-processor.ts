/** A model whose processor differs from LLaVA's, as its author might write it. */
import { llavaDefinition } from "../../../engine/models/llava/definition.ts";
import type { ModelDefinition, ProcessorContext } from "../../../engine/models/model-definition.ts";
import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";

/** The definition of `llava-default`, with `change` of its processor. */
export function definitionWith(
  change: (processor: MultiModalProcessor, context: ProcessorContext) => Partial<MultiModalProcessor>,
): ModelDefinition {
  const images = llavaDefinition.images!;
  return {
    ...llavaDefinition,
    images: {
      ...images,
      createProcessor(info, context) {
        const processor = images.createProcessor(info, context);
        return { ...processor, ...change(processor, context) };
      },
    },
  };
}
