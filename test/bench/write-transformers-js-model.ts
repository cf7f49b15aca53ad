/**
 * Writes the model folder that transformers.js loads, from the very graph and weights that the engine runs.
 *
 * The decoder that the engine built gets the inputs and outputs of a hub export (`attention_mask` in, a row of logits
 * per token out, keys and values that grow) through a few nodes before and after it; everything between is untouched.
 * So transformers.js runs the kernels that the engine runs (GroupQueryAttention with its own rotary embedding, fused
 * norms, packed projections, the same quantised products), which is at least as fast as what hub exports hold, and what
 * a comparison shows is the cost of the way a graph is run, not of the graph.
 */
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join, resolve } from "node:path";

import { externalDataFolder } from "../../engine/graph/external-data.ts";
import { decodeModel, encodeModel, onnxAttributeTypes, onnxDataTypes } from "../../engine/graph/onnx-schema.ts";
import type {
  AttributeProto,
  ModelProto,
  NodeProto,
  TensorProto,
  ValueInfoProto,
} from "../../engine/graph/onnx-schema.ts";
import type { ElementType } from "../../engine/weights/stored-tensor.ts";
import { shape } from "./shape.ts";

/** transformers.js's names of the dtypes; it derives the model file's name from them. */
export type TransformersJsDtype = "q4" | "q8";
const modelFiles: Readonly<Record<TransformersJsDtype, string>> = {
  q4: "model_q4.onnx",
  q8: "model_quantized.onnx",
};
const tokenizerFiles = ["tokenizer.json", "tokenizer_config.json"];

export interface TransformersJsModelOptions {
  /** Receives the folder of this model; transformers.js names models by a path relative to such a folder. */
  readonly folder: string;
  /** Folder of the checkpoint, for its configuration and tokenizer. */
  readonly checkpoint: string;
  /** The decoder graph that the engine built from it. */
  readonly decoderPath: string;
  readonly dtype: TransformersJsDtype;
}

/** Writes the folder, unless it exists with this graph. */
export function writeTransformersJsModel({ folder, checkpoint, decoderPath, dtype }: TransformersJsModelOptions): void {
  // Graphs are named by their content.
  const sourcePath = join(folder, "source.txt");
  if (existsSync(sourcePath) && readFileSync(sourcePath, "utf8") === decoderPath) return;
  const temporary = `${folder}.${process.pid}`;
  rmSync(temporary, { recursive: true, force: true });
  mkdirSync(join(temporary, "onnx"), { recursive: true });
  for (const name of tokenizerFiles) copyFileSync(join(checkpoint, name), join(temporary, name));
  // Without an end-of-sequence token nothing stops it early, and no step has to look for one.
  const { eos_token_id: _, ...config } = JSON.parse(readFileSync(join(checkpoint, "config.json"), "utf8"));
  writeFileSync(join(temporary, "config.json"), JSON.stringify(config, null, 2));
  writeFileSync(join(temporary, "generation_config.json"), JSON.stringify({ bos_token_id: 0, do_sample: false }));
  const model = asHubExport(decodeModel(readFileSync(decoderPath)));
  writeFileSync(join(temporary, "onnx", modelFiles[dtype]), encodeModel(model));
  writeFileSync(join(temporary, "source.txt"), decoderPath);
  rmSync(folder, { recursive: true, force: true });
  renameSync(temporary, folder);
}

// Names of sizes as in hub exports; transformers.js looks for the first of them.
const batch = "batch_size";
const length = "sequence_length";
const pastLength = "past_sequence_length";
const totalLength = "total_sequence_length";

const derivedInputs = new Set(["seqlens_k", "total_sequence_length", "logit_rows"]);

function asHubExport(model: ModelProto): ModelProto {
  const { graph } = model;
  const before = nodesBefore();
  const after = nodesAfter();
  return {
    ...model,
    graph: {
      name: graph.name,
      node: [...before.nodes, ...graph.node.map(renamed), ...after.nodes],
      initializer: [...before.constants, ...after.constants, ...graph.initializer.map(inlined)],
      input: [
        ...graph.input.filter(({ name }) => !derivedInputs.has(name)).map(withHubShape),
        valueInfo("attention_mask", "int64", [batch, totalLength]),
      ],
      output: graph.output.map(withHubShape),
    },
  };
}

/** The engine's own inputs, from the mask and the token ids. Nothing is padded, because one sequence is measured. */
function nodesBefore() {
  return {
    constants: [
      int64("hub.axis", [1], [1]),
      int64("hub.zero", [], [0]),
      int64("hub.one", [], [1]),
      int64("hub.length_index", [], [1]),
    ],
    nodes: [
      node("ReduceSum", ["attention_mask", "hub.axis"], "hub.lengths", [intAttribute("keepdims", 0)]),
      node("Sub", ["hub.lengths", "hub.one"], "hub.last_positions"),
      node("Cast", ["hub.last_positions"], "seqlens_k", [intAttribute("to", onnxDataTypes.int32)]),
      node("Shape", ["attention_mask"], "hub.mask_shape"),
      node("Gather", ["hub.mask_shape", "hub.length_index"], "hub.total", [intAttribute("axis", 0)]),
      node("Cast", ["hub.total"], "total_sequence_length", [intAttribute("to", onnxDataTypes.int32)]),
      node("Size", ["input_ids"], "hub.num_tokens"),
      node("Range", ["hub.zero", "hub.num_tokens", "hub.one"], "logit_rows"),
    ],
  };
}

/** [batch, length, vocabSize] of the rows of logits. */
function nodesAfter() {
  return {
    constants: [int64("hub.vocab_size", [1], [shape.vocabSize])],
    nodes: [
      node("Shape", ["input_ids"], "hub.ids_shape"),
      node("Concat", ["hub.ids_shape", "hub.vocab_size"], "hub.logits_shape", [intAttribute("axis", 0)]),
      node("Reshape", ["hub.logit_rows", "hub.logits_shape"], "logits"),
    ],
  };
}

const hubName = (name: string): string =>
  name === "logits" ? "hub.logit_rows" : name.replace(/^past\.(\d+\.(?:key|value))$/, "past_key_values.$1");

function renamed(original: NodeProto): NodeProto {
  return { ...original, input: original.input.map(hubName), output: original.output.map(hubName) };
}

function withHubShape(original: ValueInfoProto): ValueInfoProto {
  const { name } = original;
  if (name === "logits") return valueInfo(name, "float32", [batch, length, shape.vocabSize]);
  if (name === "input_ids") return valueInfo(name, "int64", [batch, length]);
  const keys = name.startsWith("past.") ? pastLength : totalLength;
  return valueInfo(hubName(name), "float32", [batch, shape.numKvHeads, keys, shape.headDim]);
}

/** Hub exports of this size contain their weights in the model file. */
function inlined({ name, dims, dataType, rawData, externalData }: TensorProto): TensorProto {
  if (rawData !== undefined) return { name, dims, dataType, rawData };
  const entries = Object.fromEntries((externalData ?? []).map(({ key, value }) => [key, value]));
  const bytes = Buffer.alloc(Number(entries["length"]));
  const file = openSync(resolve(externalDataFolder, entries["location"]!), "r");
  readSync(file, bytes, 0, bytes.length, Number(entries["offset"]));
  closeSync(file);
  return { name, dims, dataType, rawData: bytes };
}

function node(opType: string, input: string[], output: string, attribute: AttributeProto[] = []): NodeProto {
  return { name: `hub/${output}`, opType, domain: "", input, output: [output], attribute };
}

function intAttribute(name: string, i: number): AttributeProto {
  return { name, type: onnxAttributeTypes.int, i };
}

function int64(name: string, dims: number[], values: number[]): TensorProto {
  const rawData = new Uint8Array(BigInt64Array.from(values, BigInt).buffer);
  return { name, dims, dataType: onnxDataTypes.int64, rawData };
}

function valueInfo(name: string, elementType: ElementType, dimensions: (string | number)[]): ValueInfoProto {
  const dim = dimensions.map((size) => (typeof size === "number" ? { dimValue: size } : { dimParam: size }));
  return { name, type: { tensorType: { elemType: onnxDataTypes[elementType], shape: { dim } } } };
}
