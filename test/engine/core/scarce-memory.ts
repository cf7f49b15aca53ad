/** Graphs that fail as a device without memory does, depending on the size of a run. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { decodeModel, encodeModel, onnxDataTypes } from "../../../engine/graph/onnx-schema.ts";
import type { NodeProto, TensorProto } from "../../../engine/graph/onnx-schema.ts";
import type { GoldenModel } from "./golden-engine.ts";

/** The largest runs for which there is memory. */
export interface DeviceRoom {
  readonly numTokens?: number;
  readonly numSequences?: number;
  /** Tokens of a sequence before the run. */
  readonly numPastTokens?: number;
  /** Rows of logits. */
  readonly numRows?: number;
}

const failureText = "CUDA failure 2: out of memory";

/**
 * Writes the graph with nodes that look a size up in a table which ends at the limit. ONNX Runtime rejects what is beyond
 * it, and its error quotes the name of the node.
 *
 * @param folder Receives the graph.
 */
export async function withRoomFor(golden: GoldenModel, room: DeviceRoom, folder: string): Promise<GoldenModel> {
  const { decoder } = golden.model;
  const model = decodeModel(await readFile(decoder.path));
  const isPaged = model.graph.input.some(({ name }) => name === "past_lengths");
  const lengths = isPaged ? "past_lengths" : "seqlens_k";
  const nodes: NodeProto[] = [];
  const tables: TensorProto[] = [];
  let ids = "input_ids";
  const add = (opType: string, input: readonly string[], output: string, name = output): string => {
    nodes.push({ name, opType, domain: "", input, output: [output], attribute: [] });
    return output;
  };
  const require = (what: string, size: string, limit: number | undefined): void => {
    if (limit === undefined) return;
    const table = `room.${what}.table`;
    const rawData = new Uint8Array(8 * (limit + 1));
    tables.push({ name: table, dims: [limit + 1], dataType: onnxDataTypes.int64, rawData });
    const zero = add("Gather", [table, size], `room.${what}`, `${failureText} (${what})`);
    ids = add("Add", [ids, zero], `room.${what}.ids`);
  };
  const scalar = "room.scalar";
  tables.push({ name: scalar, dims: [0], dataType: onnxDataTypes.int64, rawData: new Uint8Array(0) });
  require("tokens", add("Size", ["input_ids"], "room.numTokens"), room.numTokens);
  require("rows", add("Size", ["logit_rows"], "room.numRows"), room.numRows);
  require("sequences", add("Size", [lengths], "room.numSequences"), room.numSequences);
  const longest = add("Reshape", [add("ReduceMax", [lengths], "room.longest.kept"), scalar], "room.longest");
  require("past", longest, room.numPastTokens);
  const node = model.graph.node.map((each) => ({
    ...each,
    input: each.input.map((name) => (name === "input_ids" ? ids : name)),
  }));
  const graph = {
    ...model.graph,
    node: [...nodes, ...node],
    initializer: [...model.graph.initializer, ...tables],
  };
  const path = join(folder, `room-${Object.entries(room).flat().join("-")}.onnx`);
  await writeFile(path, encodeModel({ ...model, graph }));
  return { ...golden, model: { ...golden.model, decoder: { ...decoder, path } } };
}

/** The same for the vision encoder, whose first input may have only so many numbers. */
export async function withRoomForImage(golden: GoldenModel, numNumbers: number, folder: string): Promise<GoldenModel> {
  const visionEncoder = golden.model.visionEncoder!;
  const model = decodeModel(await readFile(visionEncoder.path));
  const { name } = model.graph.input[0]!;
  const [table, scarce] = ["room.table", `${name}.scarce`];
  const rawData = new Uint8Array(4 * (numNumbers + 1));
  const initializer = { name: table, dims: [numNumbers + 1], dataType: onnxDataTypes.float32, rawData };
  const create = (opType: string, input: readonly string[], output: string, nodeName = output): NodeProto => ({
    name: nodeName,
    opType,
    domain: "",
    input,
    output: [output],
    attribute: [],
  });
  const node = [
    create("Size", [name], "room.size"),
    create("Gather", [table, "room.size"], "room.zero", `${failureText} (image)`),
    create("Add", [name, "room.zero"], scarce),
    ...model.graph.node.map((each) => ({
      ...each,
      input: each.input.map((input) => (input === name ? scarce : input)),
    })),
  ];
  const graph = { ...model.graph, node, initializer: [...model.graph.initializer, initializer] };
  const path = join(folder, `image-room-${numNumbers}.onnx`);
  await writeFile(path, encodeModel({ ...model, graph }));
  return { ...golden, model: { ...golden.model, visionEncoder: { ...visionEncoder, path } } };
}
