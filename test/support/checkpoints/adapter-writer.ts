/** Writes LoRA adapters in PEFT's form. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { StoredTensor } from "../../../engine/weights/stored-tensor.ts";
import { floatTensor, writeSafetensors, type SafetensorsTensor } from "./safetensors-writer.ts";

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

/** Updates of a checkpoint's matrices as if they were random, of a size that changes answers. */
export async function writeRandomAdapter(
  folder: string,
  matrices: readonly Pick<StoredTensor, "name" | "shape">[],
  { rank, seed }: { readonly rank: number; readonly seed: number },
): Promise<string> {
  let numDrawn = 0;
  const draw = (): number => {
    const scrambled = Math.sin(seed * 78.233 + numDrawn++ * 12.9898) * 43758.5453;
    return scrambled - Math.floor(scrambled) - 0.5;
  };
  const values = (length: number, range: number): Float32Array => Float32Array.from({ length }, () => draw() * range);
  const tensors = matrices.flatMap(({ name, shape }) => {
    const [rows, columns] = shape as readonly [number, number];
    const module = `base_model.model.${name.replace(/\.weight$/, "")}`;
    return [
      floatTensor(`${module}.lora_A.weight`, [rank, columns], values(rank * columns, 1)),
      floatTensor(`${module}.lora_B.weight`, [rows, rank], values(rows * rank, 0.2)),
    ];
  });
  return writeAdapter(folder, tensors, { lora_alpha: rank });
}
