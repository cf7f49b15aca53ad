/** Reads the inputs and outputs of an exported decoder and checks them against config.json. */
import { EngineError } from "../../contract/errors.ts";
import type { DecoderExport } from "../built-model.ts";
import type { ConfiguredModel } from "../model-definition.ts";
import { readStates } from "./exported-states.ts";
import {
  elementTypeIn,
  refuseOtherInputs,
  requireOpenLengths,
  requireShape,
  requireValue,
  type OnnxFile,
} from "./onnx-file.ts";

const floats = ["float32", "float16"] as const;
const pastName = /^past_key_values\.(\d+)\.key$/;

/**
 * @param embedTokens Null for a decoder of token ids.
 * @throws EngineError `unsupported_model` and `invalid_checkpoint` that name the file and what is expected of it.
 */
export function readDecoderInterface(
  { decoder: dimensions, visionEncoder }: ConfiguredModel,
  decoder: OnnxFile,
  embedTokens: OnnxFile | null,
): DecoderExport {
  const { numLayers, numKvHeads, headDim, hiddenSize, vocabSize, takesPositions = false } = dimensions;
  if (dimensions.kvHeads !== undefined) {
    throw new EngineError(
      "unsupported_model",
      `${decoder.name}: an export whose layers have different heads is not supported; use the checkpoint's safetensors files.`,
    );
  }
  const kvLayers = readKvLayers(decoder, numLayers);
  const past = namesOf(kvLayers, "past_key_values");
  const states = dimensions.recurrent === undefined ? [] : readStates(decoder, dimensions.recurrent);
  const inputsName = embedTokens === null ? "input_ids" : "inputs_embeds";
  const known = [inputsName, "attention_mask", "position_ids", "num_logits_to_keep", "use_cache_branch", ...past];
  // Only where images see all of themselves do the types of tokens change anything.
  if (dimensions.keepsImagesWhole === true) known.push("token_type_ids");
  refuseOtherInputs(decoder, new Set([...known, ...states.map(({ input }) => input)]));

  const inputs = requireValue(decoder, "inputs", inputsName);
  requireShape(decoder, inputs, embedTokens === null ? [null, null] : [null, null, hiddenSize]);
  if (embedTokens === null) elementTypeIn(decoder, inputs, ["int64"]);
  const kvShape = [null, numKvHeads, null, headDim];
  requireOpenLengths(decoder, inputs, [1]);
  for (const name of past) {
    const value = requireValue(decoder, "inputs", name);
    requireShape(decoder, value, kvShape);
    requireOpenLengths(decoder, value, [2]);
  }
  for (const name of namesOf(kvLayers, "present")) {
    requireShape(decoder, requireValue(decoder, "outputs", name), kvShape);
  }
  const logits = requireValue(decoder, "outputs", "logits");
  requireShape(decoder, logits, [null, null, vocabSize]);
  const mask = decoder.inputs.get("attention_mask");
  if (mask !== undefined) {
    requireShape(decoder, mask, [null, null]);
    requireOpenLengths(decoder, mask, [1]);
    elementTypeIn(decoder, mask, ["int64"]);
  }
  const types = decoder.inputs.get("token_type_ids");
  if (types !== undefined) {
    requireShape(decoder, types, [null, null]);
    elementTypeIn(decoder, types, ["int64"]);
  }
  const toKeep = decoder.inputs.get("num_logits_to_keep");
  const branch = decoder.inputs.get("use_cache_branch");
  if (branch !== undefined) elementTypeIn(decoder, branch, ["bool"]);
  return {
    form: "export",
    path: decoder.path,
    numLayers,
    numKvHeads,
    headDim,
    hiddenSize,
    imageWidth: hiddenSize,
    vocabSize,
    takesPositions,
    keepsImagesWhole: types !== undefined,
    ...(dimensions.recurrent && { recurrent: dimensions.recurrent }),
    kvElementType: elementTypeIn(decoder, requireValue(decoder, "inputs", past[0]!), floats),
    acceptsImages: visionEncoder !== null,
    embedTokens: embedTokens === null ? null : readEmbedTokens(embedTokens, hiddenSize),
    embedsElementType: embedTokens === null ? "float32" : elementTypeIn(decoder, inputs, floats),
    logitsElementType: elementTypeIn(decoder, logits, floats),
    kvLayers,
    states,
    takesTokenTypes: types !== undefined,
    takesAttentionMask: mask !== undefined,
    numPositionAxes: numPositionAxes(decoder, takesPositions),
    numLogitsToKeepRank: toKeep === undefined ? null : toKeep.shape?.length === 1 ? 1 : 0,
    hasCacheBranch: branch !== undefined,
    weightBytes: decoder.byteLength,
    // Whether a graph excludes padding from its states is not to be seen from outside.
    padding: states.length > 0 || [decoder, embedTokens].some(takesOneSequence) ? null : paddingOf(decoder),
  };
}

/** Whether the number of sequences was fixed when the file was made: it may also be a constant inside. */
function takesOneSequence(file: OnnxFile | null): boolean {
  return [...(file?.inputs.values() ?? [])].some(({ name, shape }) => sequenceInputs.test(name) && shape?.[0] === 1);
}

const sequenceInputs = /^(input_ids|inputs_embeds|attention_mask|past_key_values\.\d+\.(key|value))$/;

/** Operators with one scale for the activations of all sequences of a run. */
const sharedScales = ["DynamicQuantizeLinear", "DynamicQuantizeMatMul"];

/**
 * Fused attention takes lengths, which exports sum from the mask, so its sequences start at the front. Other attention
 * is masked and can be padded at the front if positions are an input. Nested graphs are not checked.
 */
function paddingOf({ inputs, operators }: OnnxFile): DecoderExport["padding"] {
  const isMasked = inputs.has("attention_mask") && !inputs.has("use_cache_branch");
  if (!isMasked || sharedScales.some((operator) => operators.has(operator))) return null;
  if (operators.has("GroupQueryAttention")) return "back";
  return inputs.has("position_ids") ? "front" : null;
}

function namesOf(layers: readonly number[], prefix: string): string[] {
  return layers.flatMap((layer) => [`${prefix}.${layer}.key`, `${prefix}.${layer}.value`]);
}

/** The layers with keys and values, as the file numbers them: beside recurrent layers, not from 0 on. */
function readKvLayers(decoder: OnnxFile, numLayers: number): number[] {
  const layers = [...decoder.inputs.keys()].flatMap((name) => pastName.exec(name)?.[1] ?? []).map(Number);
  if (layers.length === numLayers) return layers.sort((left, right) => left - right);
  throw new EngineError(
    "invalid_checkpoint",
    `${decoder.name} has keys and values for ${layers.length} layers (past_key_values.0.key and so on); config.json implies ${numLayers}.`,
  );
}

function readEmbedTokens(file: OnnxFile, hiddenSize: number): NonNullable<DecoderExport["embedTokens"]> {
  refuseOtherInputs(file, new Set(["input_ids"]));
  elementTypeIn(file, requireValue(file, "inputs", "input_ids"), ["int64"]);
  const embeddings = requireValue(file, "outputs", "inputs_embeds");
  requireShape(file, embeddings, [null, null, hiddenSize]);
  return { path: file.path, elementType: elementTypeIn(file, embeddings, floats) };
}

/** Throws EngineError `unsupported_model` if the number of position axes differs from the model's. */
function numPositionAxes(decoder: OnnxFile, takesPositions: boolean): DecoderExport["numPositionAxes"] {
  const positions = decoder.inputs.get("position_ids");
  if (positions === undefined && !takesPositions) return 0;
  const value = requireValue(decoder, "inputs", "position_ids");
  elementTypeIn(decoder, value, ["int64"]);
  // Exports of some text models take three axes too, which are then equal.
  const hasAxes = takesPositions || value.shape?.length === 3;
  requireShape(decoder, value, hasAxes ? [3, null, null] : [null, null]);
  return hasAxes ? 3 : 1;
}
