/**
 * Selects the files of a hub repository's `onnx/` folder.
 *
 * The layout is that of transformers.js: a file per part of a model, in several variants that differ by a suffix.
 * Weights beyond 2 GB are next to their file, in `<file>_data`, `<file>_data_1` and so on.
 */
import type { DeviceName, DtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";

export const onnxFolder = "onnx";

/** Whether a folder of these files is an export. */
export function isOnnxExport(fileNames: readonly string[]): boolean {
  return fileNames.some((fileName) => fileName.endsWith(".onnx"));
}

/** Names of the files in `onnx/` that a start loads. */
export interface OnnxFiles {
  /** Its inputs are embeddings if there is `embedTokens`, otherwise token ids. */
  readonly decoder: string;
  readonly embedTokens: string | null;
  readonly visionEncoder: string | null;
}

/** The requested variant. */
export interface OnnxVariant {
  readonly dtype: DtypeName;
  readonly device: DeviceName;
}

/** The dtype that `auto` means on the device. 16 bits are allowed on the CPU, where they are slow. */
export function resolveOnnxDtype({ dtype, device }: OnnxVariant): Exclude<DtypeName, "auto"> {
  if (dtype !== "auto") return dtype;
  return device === "cpu" ? "float32" : "float16";
}

/** Takes embeddings; its counterpart in exports of text models takes token ids. */
const mergedDecoder = "decoder_model_merged";
const wholeModel = "model";
const embedTokens = "embed_tokens";
const visionEncoder = "vision_encoder";

const exact = "";
const float16 = ["_fp16"];
const int8 = ["_quantized", "_int8", "_uint8"];

/** Suffixes by dtype; the first existing one is used. GPUs compute in 16-bit activations. */
function suffixesOf(dtype: Exclude<DtypeName, "auto">, device: DeviceName): readonly string[] {
  switch (dtype) {
    case "float32":
      return [exact];
    case "float16":
      return float16;
    case "bfloat16":
      return ["_bf16"];
    case "int8":
      return int8;
    case "int4":
      return device === "cpu" ? ["_q4", "_bnb4", "_q4f16"] : ["_q4f16", "_q4", "_bnb4"];
  }
  return dtype satisfies never;
}

/** Dtypes that replace a missing one for the other parts: more exact, never less. */
function substitutesOf(dtype: Exclude<DtypeName, "auto">, device: DeviceName): readonly string[] {
  const floats = device === "cpu" ? [exact, ...float16] : [...float16, exact];
  switch (dtype) {
    case "float32":
      return [];
    case "float16":
    case "bfloat16":
      return [exact];
    case "int8":
      return floats;
    case "int4":
      return [...int8, ...floats];
  }
  return dtype satisfies never;
}

/**
 * The decoder must exist in the requested dtype. Token embeddings and vision encoder, which many repositories quantise
 * less or not at all, fall back to the next more exact variant.
 *
 * @param fileNames All files of the folder.
 * @throws EngineError `invalid_configuration` that lists the existing dtypes, `invalid_checkpoint` for a missing part.
 */
export function chooseOnnxFiles(fileNames: readonly string[], variant: OnnxVariant): OnnxFiles {
  const { device } = variant;
  const dtype = resolveOnnxDtype(variant);
  const wanted = suffixesOf(dtype, device);
  const find = (part: string, suffixes: readonly string[]): string | null =>
    suffixes.map((suffix) => `${part}${suffix}.onnx`).find((fileName) => fileNames.includes(fileName)) ?? null;
  const isInParts = [mergedDecoder, embedTokens].some((part) =>
    fileNames.some((fileName) => variantOf(fileName, part) !== null),
  );
  const part = isInParts ? mergedDecoder : wholeModel;
  const decoder = find(part, wanted);
  if (decoder === null) {
    const variants = fileNames.filter((fileName) => variantOf(fileName, part) !== null).sort();
    throw new EngineError(
      "invalid_configuration",
      `The export has no decoder in ${dtype}, ${onnxFolder}/${part}${wanted[0]}.onnx. ${
        variants.length === 0 ? "It has none at all." : `There are: ${variants.map(describeVariant).join(", ")}.`
      }`,
    );
  }
  if (!isInParts) return { decoder, embedTokens: null, visionEncoder: null };
  const suffixes = [...wanted, ...substitutesOf(dtype, device)];
  const embeddings = find(embedTokens, suffixes);
  if (embeddings === null) {
    throw new EngineError(
      "invalid_checkpoint",
      `The export lacks ${onnxFolder}/${embedTokens}${wanted[0]}.onnx, which computes the inputs of ${decoder}.`,
    );
  }
  return { decoder, embedTokens: embeddings, visionEncoder: find(visionEncoder, suffixes) };
}

/** Whether the file is a chosen one or contains its weights. */
export function belongsTo(fileName: string, files: OnnxFiles): boolean {
  return [files.decoder, files.embedTokens, files.visionEncoder].some(
    (chosen) =>
      chosen !== null &&
      (fileName === chosen || fileName.startsWith(`${chosen}_data`) || fileName === `${chosen}.data`),
  );
}

/** The suffix of the variant; null for a file of another part. */
function variantOf(fileName: string, part: string): string | null {
  if (!fileName.startsWith(part) || !fileName.endsWith(".onnx")) return null;
  const suffix = fileName.slice(part.length, -".onnx".length);
  return suffix === "" || suffix in dtypeNames ? suffix : null;
}

const dtypeNames: Readonly<Record<string, DtypeName>> = {
  _fp16: "float16",
  _bf16: "bfloat16",
  _quantized: "int8",
  _int8: "int8",
  _uint8: "int8",
  _q4: "int4",
  _bnb4: "int4",
  _q4f16: "int4",
};

function describeVariant(fileName: string): string {
  const suffix = /_[a-z0-9]+(?=\.onnx$)/.exec(fileName)?.[0] ?? "";
  return `${fileName} (${dtypeNames[suffix] ?? "float32"})`;
}
