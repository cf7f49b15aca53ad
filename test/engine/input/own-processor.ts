/** A model whose processor differs from LLaVA's, as its author might write it. */
import { llavaDefinition } from "../../../engine/models/llava/definition.ts";
import type { ModelDefinition, ProcessorContext } from "../../../engine/models/model-definition.ts";
import type { MultiModalProcessor } from "../../../engine/multimodal/multimodal-processor.ts";
import type { ProcessingInfo } from "../../../engine/multimodal/processing-info.ts";

/**
 * The definition of `llava-default`, with changes of its processor and processing info.
 *
 * @param program The text of a `PixelProgram`. Default: none.
 */
export function definitionWith(
  change: (processor: MultiModalProcessor, context: ProcessorContext) => Partial<MultiModalProcessor>,
  infoChange: Partial<ProcessingInfo> = {},
  program?: string,
): ModelDefinition {
  const images = llavaDefinition.images!;
  return {
    ...llavaDefinition,
    images: {
      ...images,
      ...(program !== undefined && { pixelProgram: new URL(`data:text/javascript,${encodeURIComponent(program)}`) }),
      createProcessingInfo: (context) => ({ ...images.createProcessingInfo(context), ...infoChange }),
      createProcessor(info, context) {
        const processor = images.createProcessor(info, context);
        return { ...processor, ...change(processor, context) };
      },
    },
  };
}
