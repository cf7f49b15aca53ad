/**
 * Pictures per second from the bytes of a JPEG to the tensors of a vision encoder, several at once, compared with the
 * same processors of transformers.js. Theirs let the decoding library also resize, for LLaVA and Qwen2-VL from 16
 * pixels around each new one; ours are bit-identical to Pillow. Ours are limited by decoding for LLaVA and, with a
 * large picture, for Qwen2-VL; by resizing to 2048 pixels and writing the values, 12 MiB and more, for the others. The
 * photograph is enlarged, so it decodes faster than one of that size from a camera, and resizing weighs more than in
 * practice.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import sharp from "sharp";

import { createImageProcessor } from "../../engine/images/image-processor.ts";
import { parsePreprocessorConfig } from "../../engine/images/preprocessor-config.ts";
import type { CanonicalValue } from "../../engine/multimodal/hasher.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureTransformersJsImages, requirePeer } from "./peers.ts";
import { benchFolder, numThreads } from "./settings.ts";

const photo = fileURLToPath(new URL("../fixtures/goldens/pictures/photo.png", import.meta.url));
const pictures = [
  { name: "1 megapixel", width: 1152, height: 864, share: 1 },
  { name: "12 megapixels", width: 4000, height: 3000, share: 1 / 4 },
] as const;
const target = 1;

const rescaled = { do_convert_rgb: true, do_resize: true, do_rescale: true, rescale_factor: 1 / 255 };
const clipNormalized = {
  do_normalize: true,
  image_mean: [0.48145466, 0.4578275, 0.40821073],
  image_std: [0.26862954, 0.26130258, 0.27577711],
};

const halfNormalized = { do_normalize: true, image_mean: [0.5, 0.5, 0.5], image_std: [0.5, 0.5, 0.5] };

/** LLaVA 1.5's. */
export const preprocessorConfig = {
  image_processor_type: "CLIPImageProcessor",
  ...rescaled,
  ...clipNormalized,
  size: { shortest_edge: 336 },
  resample: 3,
  do_center_crop: true,
  crop_size: { height: 336, width: 336 },
};

interface BenchedProcessor {
  readonly name: string;
  /** Number of pictures of one megapixel in a round. */
  readonly numPictures: number;
  readonly preprocessorConfig: Readonly<Record<string, CanonicalValue>>;
  /** Null if the configuration is sufficient. */
  readonly program: string | null;
}

const processors: readonly BenchedProcessor[] = [
  {
    name: "LLaVA 1.5",
    numPictures: 48,
    preprocessorConfig,
    program: null,
  },
  {
    name: "Qwen2-VL",
    numPictures: 24,
    preprocessorConfig: {
      image_processor_type: "Qwen2VLImageProcessor",
      ...rescaled,
      ...clipNormalized,
      resample: 3,
      min_pixels: 56 * 56,
      max_pixels: 28 * 28 * 1280,
      patch_size: 14,
      temporal_patch_size: 2,
      merge_size: 2,
    },
    program: "qwen2-vl/pixel-program.ts",
  },
  {
    name: "SmolVLM",
    numPictures: 24,
    preprocessorConfig: {
      image_processor_type: "Idefics3ImageProcessor",
      ...rescaled,
      ...halfNormalized,
      resample: 1,
      do_image_splitting: true,
      do_pad: true,
      size: { longest_edge: 2048 },
      max_image_size: { longest_edge: 512 },
    },
    program: "idefics3/pixel-program.ts",
  },
  {
    name: "Qwen3-VL",
    numPictures: 8,
    preprocessorConfig: {
      image_processor_type: "Qwen2VLImageProcessorFast",
      ...rescaled,
      ...halfNormalized,
      resample: 3,
      size: { shortest_edge: 65_536, longest_edge: 16_777_216 },
      patch_size: 16,
      temporal_patch_size: 2,
      merge_size: 2,
    },
    program: "qwen2-vl/pixel-program.ts",
  },
  {
    name: "GLM-OCR",
    numPictures: 8,
    preprocessorConfig: {
      image_processor_type: "Glm46VImageProcessor",
      ...rescaled,
      ...clipNormalized,
      resample: 3,
      size: { shortest_edge: 12_544, longest_edge: 9_633_792 },
      patch_size: 14,
      temporal_patch_size: 2,
      merge_size: 2,
    },
    program: "qwen2-vl/pixel-program.ts",
  },
  {
    name: "Mistral 3",
    numPictures: 8,
    preprocessorConfig: {
      image_processor_type: "PixtralImageProcessor",
      ...rescaled,
      ...clipNormalized,
      resample: 3,
      size: { longest_edge: 1540 },
      patch_size: 14,
      spatial_merge_size: 2,
    },
    program: "pixtral/pixel-program.ts",
  },
  {
    name: "Gemma 3",
    numPictures: 8,
    preprocessorConfig: {
      image_processor_type: "Gemma3ImageProcessor",
      ...rescaled,
      ...halfNormalized,
      resample: 2,
      size: { height: 896, width: 896 },
    },
    program: null,
  },
];

async function ourPicturesPerSecond(
  { preprocessorConfig: options, program }: BenchedProcessor,
  bytes: Uint8Array,
  numPictures: number,
): Promise<number> {
  const limits = { maxImagePixels: 2 ** 26, numThreads };
  const processor = createImageProcessor(limits);
  const signal = new AbortController().signal;
  const process = (): Promise<unknown> => {
    if (program === null) return processor.process({ bytes }, parsePreprocessorConfig(options), signal);
    const module = new URL(`../../engine/models/${program}`, import.meta.url).href;
    return processor.runProgram({ bytes }, { module, options }, signal);
  };
  try {
    // Warms up every thread.
    await Promise.all(Array.from({ length: numThreads }, process));
    const start = performance.now();
    await Promise.all(Array.from({ length: numPictures }, process));
    return (numPictures * 1000) / (performance.now() - start);
  } finally {
    await processor.close();
  }
}

export async function benchImageProcessor(rounds: number): Promise<Figure[]> {
  requirePeer("@huggingface/transformers");
  const figures: Figure[] = [];
  for (const processor of processors) {
    const folder = join(benchFolder, "image-processors", processor.name.replaceAll(" ", "-"));
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "preprocessor_config.json"), JSON.stringify(processor.preprocessorConfig));
    for (const { name: size, width, height, share } of pictures) {
      const name = `${processor.name}, JPEG of ${size}`;
      const numPictures = processor.numPictures * share;
      const file = join(folder, `${width}x${height}.jpg`);
      await sharp(photo).resize(width, height, { fit: "fill" }).jpeg({ quality: 90 }).toFile(file);
      const bytes = await readFile(file);
      const ours: number[] = [];
      const theirs: number[] = [];
      for (let round = 0; round < rounds; round++) {
        theirs.push(await measureTransformersJsImages(folder, file, numPictures));
        ours.push(await ourPicturesPerSecond(processor, bytes, numPictures));
        reportProgress(`${name}: ${ours[round]!.toFixed(1)} and ${theirs[round]!.toFixed(1)} pictures/s`);
      }
      figures.push(ratioFigure({ name, unit: "pictures/s", ours, theirs, target }));
    }
  }
  return figures;
}
