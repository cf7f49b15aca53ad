/** Processing of pictures whose tensors a pixel program makes, each picture alone. */
import { allOrNone } from "../concurrent-work.ts";
import { EngineError } from "../contract/errors.ts";
import { fieldConfig } from "./field-config.ts";
import type { MultiModalProcessor, PixelProcessor } from "./multimodal-processor.ts";
import type { ItemTensor } from "./processed-item.ts";

/** @param names Tensors of each picture; each is a field of the batch. */
export function pictureFields(
  pixels: PixelProcessor,
  names: readonly string[],
): Pick<MultiModalProcessor, "processImages" | "fieldConfigs"> {
  return {
    async processImages(images, options, signal) {
      const processed = await allOrNone(images, (image, either) => pixels.process(image, options, either), signal);
      const field = (name: string): [string, ItemTensor[]] => [
        name,
        processed.map(({ tensors }) => tensorOf(tensors, name)),
      ];
      return { fields: new Map(names.map(field)), imageSizes: processed.map((image) => image.imageSize) };
    },
    fieldConfigs: () => Object.fromEntries(names.map((name) => [name, fieldConfig.batched()])),
  };
}

/** Throws EngineError `internal` for a picture without the tensor. */
export function tensorOf(tensors: ReadonlyMap<string, ItemTensor>, name: string): ItemTensor {
  const tensor = tensors.get(name);
  if (tensor !== undefined) return tensor;
  const made = [...tensors.keys()].join(", ");
  throw new EngineError("internal", `The pixel program made no tensor ${name}; it made ${made || "none"}.`);
}
