/**
 * Pictures a second from the bytes of a JPEG to the pixel values of LLaVA 1.5 (336 x 336), several at once, against the
 * image processor of transformers.js, which lets its decoding library resize. Ours gives Pillow's very bytes, by sums
 * of integers in JavaScript, which bound it: they take two thirds of its time and more, decoding the rest.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";
import sharp from "sharp";
import { createImageProcessor } from "../../engine/images/image-processor.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { measureTransformersJsImages, requirePeer } from "./peers.ts";
import { benchFolder, numThreads } from "./settings.ts";

const photo = fileURLToPath(new URL("../fixtures/goldens/pictures/photo.png", import.meta.url));
const pictures = [
  { name: "1 megapixel", width: 1152, height: 864, numPictures: 48 },
  { name: "12 megapixels", width: 4000, height: 3000, numPictures: 12 },
] as const;
const edge = 336;
const target = 1;

/** LLaVA 1.5's. */
export const preprocessorConfig = {
  image_processor_type: "CLIPImageProcessor",
  do_convert_rgb: true,
  do_resize: true,
  size: { shortest_edge: edge },
  resample: 3,
  do_center_crop: true,
  crop_size: { height: edge, width: edge },
  do_rescale: true,
  rescale_factor: 1 / 255,
  do_normalize: true,
  image_mean: [0.48145466, 0.4578275, 0.40821073],
  image_std: [0.26862954, 0.26130258, 0.27577711],
};

async function ourPicturesPerSecond(bytes: Uint8Array, numPictures: number): Promise<number> {
  const processor = createImageProcessor(preprocessorConfig, { maxImagePixels: 2 ** 26, numThreads });
  try {
    const process = (): Promise<unknown> => processor.process(bytes, new AbortController().signal);
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
  const folder = join(benchFolder, "llava-image-processor");
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "preprocessor_config.json"), JSON.stringify(preprocessorConfig));
  const figures: Figure[] = [];
  for (const { name, width, height, numPictures } of pictures) {
    const file = join(folder, `${width}x${height}.jpg`);
    await sharp(photo).resize(width, height, { fit: "fill" }).jpeg({ quality: 90 }).toFile(file);
    const bytes = await readFile(file);
    const ours: number[] = [];
    const theirs: number[] = [];
    for (let round = 0; round < rounds; round++) {
      theirs.push(await measureTransformersJsImages(folder, file, numPictures));
      ours.push(await ourPicturesPerSecond(bytes, numPictures));
      reportProgress(`${name}: ${ours[round].toFixed(1)} and ${theirs[round].toFixed(1)} pictures/s`);
    }
    figures.push(
      ratioFigure({ name: `JPEG of ${name}, against transformers.js`, unit: "pictures/s", ours, theirs, target }),
    );
  }
  return figures;
}
