/** Processing of pictures whose tensors a pixel program makes, each picture alone. */
import { allOrNone } from "./all-or-none.ts";
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
        processed.map(({ tensors }) => tensors.get(name) as ItemTensor),
      ];
      return { fields: new Map(names.map(field)), imageSizes: processed.map((image) => image.imageSize) };
    },
    fieldConfigs: () => Object.fromEntries(names.map((name) => [name, fieldConfig.batched()])),
  };
}
