/** Makes parts of recorded checkpoints into checkpoints of their own. */
import { copyFile, mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { readSafetensorsHeader } from "../../../engine/weights/safetensors.ts";
import { goldensFolder } from "../../support/checkpoints/goldens.ts";
import { writeSafetensors } from "../../support/checkpoints/safetensors-writer.ts";

/** Writes the tensors that `rename` gives a name. */
async function copyTensors(name: string, file: string, rename: (name: string) => string | null): Promise<void> {
  const source = join(goldensFolder, name, "model.safetensors");
  const bytes = await readFile(source);
  const tensors = [...(await readSafetensorsHeader(source))!.values()].flatMap((tensor) => {
    const renamed = rename(tensor.name);
    const content = bytes.subarray(tensor.byteOffset, tensor.byteOffset + tensor.byteLength);
    return renamed === null ? [] : [{ name: renamed, dtype: "F32" as const, shape: tensor.shape, bytes: content }];
  });
  await writeSafetensors(file, tensors);
}

/** The language model of a LLaVA checkpoint as a Llama checkpoint, with its tokenizer and chat template. */
export async function writeLanguageModel(name: string, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const config = JSON.parse(await readFile(join(goldensFolder, name, "config.json"), "utf8"));
  const text = { ...config.text_config, architectures: ["LlamaForCausalLM"], torch_dtype: "float32" };
  await writeFile(join(folder, "config.json"), JSON.stringify(text));
  for (const file of ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"]) {
    await copyFile(join(goldensFolder, name, file), join(folder, file));
  }
  const prefix = "language_model.";
  await copyTensors(name, join(folder, "model.safetensors"), (tensor) =>
    tensor.startsWith(prefix) ? tensor.slice(prefix.length) : null,
  );
}

/** The vision tower of a LLaVA checkpoint with SigLIP, in the form of a SigLIP checkpoint. */
export async function writeSiglip(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const read = async (file: string) => JSON.parse(await readFile(join(goldensFolder, "llava-siglip", file), "utf8"));
  const { vision_config } = await read("config.json");
  await writeFile(join(folder, "config.json"), JSON.stringify({ architectures: ["SiglipModel"], vision_config }));
  const { image_processor } = await read("processor_config.json");
  await writeFile(join(folder, "preprocessor_config.json"), JSON.stringify(image_processor));
  const prefix = "vision_tower.";
  await copyTensors("llava-siglip", join(folder, "model.safetensors"), (tensor) =>
    tensor.startsWith(prefix) ? `vision_model.${tensor.slice(prefix.length)}` : null,
  );
}
