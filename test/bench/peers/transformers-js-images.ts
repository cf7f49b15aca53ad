/**
 * Measures the image processor of transformers.js in a process of its own and prints one line of JSON.
 * Usage: node transformers-js-images.ts FOLDER PICTURE '{"pictures":8}', the folder with a preprocessor_config.json.
 */
import { readFile } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { AutoProcessor, RawImage, env } from "@huggingface/transformers";

const [folder, picture, optionsText] = process.argv.slice(2) as [string, string, string];
const { pictures } = JSON.parse(optionsText) as { readonly pictures: number };

env.allowRemoteModels = false;
env.localModelPath = dirname(folder);
const processor = await AutoProcessor.from_pretrained(basename(folder), {});
const bytes = await readFile(picture);

async function pixelValues(): Promise<{ readonly data: Float32Array; readonly dims: readonly number[] }> {
  const image = await RawImage.fromBlob(new Blob([bytes]));
  return (await processor.image_processor!(image)).pixel_values;
}

const { dims } = await pixelValues(); // Warms up.
const start = performance.now();
await Promise.all(Array.from({ length: pictures }, pixelValues));
const seconds = (performance.now() - start) / 1000;
console.log(JSON.stringify({ picturesPerSecond: pictures / seconds, shape: dims }));
