/** Writes LoRA adapters in PEFT's form. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { writeSafetensors, type SafetensorsTensor } from "./safetensors-writer.ts";

/** Beside the fields of `config`, those that make it a LoRA adapter with a scale of 1 at rank 2. */
export async function writeAdapter(
  folder: string,
  tensors: readonly SafetensorsTensor[],
  config: Readonly<Record<string, unknown>> = {},
): Promise<string> {
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, "adapter_config.json"), JSON.stringify({ peft_type: "LORA", lora_alpha: 2, ...config }));
  await writeSafetensors(join(folder, "adapter_model.safetensors"), tensors);
  return folder;
}
