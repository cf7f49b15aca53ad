/**
 * Names of a checkpoint's weight files and chat templates, and the error for a missing file, which says what is there
 * instead.
 */
import { EngineError } from "../contract/errors.ts";
import { onnxFolder } from "./onnx-variants.ts";

export const singleFileName = "model.safetensors";
export const indexFileName = "model.safetensors.index.json";
export const weightFileNames = `${singleFileName} and ${indexFileName} and an export in ${onnxFolder}/`;

/** Of older versions of NVIDIA's Model Optimizer. */
export const quantisationFileName = "hf_quant_config.json";

/** Files of a LoRA adapter as PEFT saves it. */
export const adapterConfigName = "adapter_config.json";
export const adapterWeightsName = "adapter_model.safetensors";

export const templateFileName = "chat_template.jinja";
export const templateFolder = "additional_chat_templates";
/** The template for conversations with tools, beside `templateFileName`. */
export const toolTemplateFileName = `${templateFolder}/tool_use.jinja`;

/** Of sentence-transformers: how the states of tokens become one embedding. */
export const poolingFolder = "1_Pooling";

/** What a folder or a remote place is expected to have: a model, or a LoRA adapter. */
export type StoredContent = "checkpoint" | "adapter";

/** Files that people take for a checkpoint, in order of precedence, and what to do with them. */
const otherForms: readonly (readonly [name: RegExp, advice: string])[] = [
  [
    /^adapter_(config\.json|model\.(safetensors|bin))$/,
    "belongs to a LoRA adapter: load its base model as the model, and it as the LoRA adapter",
  ],
  [/\.gguf$/, "is not read: use the repository that it was converted from"],
  [
    /^(pytorch_model|consolidated)\b.*\.(bin|pth?)$|\.ckpt$/,
    "is not read, because pickled files may run code: load the checkpoint in Python with transformers, and save it with save_pretrained, which writes safetensors",
  ],
  [
    /^genai_config\.json$/,
    "belongs to an export for ONNX Runtime GenAI, which is not read: use an export in the layout of transformers.js, or the safetensors that it was made from",
  ],
  [/^[^/]+\.onnx$/, `is not read: the files of an export are in ${onnxFolder}/ and have the names of transformers.js`],
];

/** @param names Those of the files that are there. */
export function lacks(
  reference: string,
  fileName: string,
  names: Iterable<string> = [],
  content: StoredContent = "checkpoint",
): EngineError {
  if (content === "adapter") {
    return new EngineError("invalid_checkpoint", `The LoRA adapter ${reference} lacks ${fileName}.`, {
      setting: "loraAdapter",
    });
  }
  const present = [...names];
  const [advice] = otherForms.flatMap(([form, what]) => {
    const name = present.find((each) => form.test(each));
    return name === undefined ? [] : [` Its file ${name} ${what}.`];
  });
  return new EngineError("invalid_checkpoint", `The checkpoint ${reference} lacks ${fileName}.${advice ?? ""}`);
}
