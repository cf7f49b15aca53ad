/** The pipelines of docs/pipelines.md, with a small text model, vision tower and projectors. */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";

import { writeLanguageModel, writeSiglip } from "../../engine/pipelines/stored-tensors.ts";
import { floatTensor, writeSafetensors } from "./safetensors-writer.ts";

/** Widths of the recorded language model and of its vision tower. */
const HIDDEN_SIZE = 48;
const VISION_SIZE = 40;
/** Values of a patch of 16 x 16 pixels. */
const PATCH_VALUES = 768;

/** Writes the folders `pipelines` and `models` of the page's tutorial. */
export async function writePipelineExample(folder: string): Promise<void> {
  const page = await readFile(new URL("../../../docs/pipelines.md", import.meta.url), "utf8");
  for (const [, path = "", text = ""] of page.matchAll(/^```ts (pipelines\/\S+)\n([^]*?)\n```$/gm)) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
  await writeLanguageModel("llava-default", join(folder, "models/llama"));
  await writeSiglip(join(folder, "models/siglip"));
  const weights = Array.from({ length: HIDDEN_SIZE * VISION_SIZE }, (_, index) => Math.sin(index));
  await writeSafetensors(join(folder, "models/projector.safetensors"), [
    floatTensor("projector.weight", [HIDDEN_SIZE, VISION_SIZE], weights),
    floatTensor("projector.bias", [HIDDEN_SIZE], weights.slice(0, HIDDEN_SIZE)),
  ]);
  const patchWeights = Array.from({ length: HIDDEN_SIZE * PATCH_VALUES }, (_, index) => Math.cos(index));
  await writeSafetensors(join(folder, "models/patch.safetensors"), [
    floatTensor("patch.weight", [HIDDEN_SIZE, PATCH_VALUES], patchWeights),
    floatTensor("patch.bias", [HIDDEN_SIZE], patchWeights.slice(0, HIDDEN_SIZE)),
  ]);
}
