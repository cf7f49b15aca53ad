/** ONNX Runtime's own reading of the CUDA graphs, as far as a session of the CPU takes it. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { externalDataFolder } from "../../engine/graph/external-data.ts";
import { GraphBuilder, microsoftDomain, standardDomain } from "../../engine/graph/graph-builder.ts";
import type { Value } from "../../engine/graph/value.ts";
import { Session } from "../../engine/runtime/session.ts";
import type { ElementType } from "../../engine/weights/stored-tensor.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { writeCudaGraphs } from "./cuda-graph-files.ts";

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

/**
 * Describes what is wrong with the graph; null if it is sound. A session checks every node against its schema and infers all types
 * and shapes before it looks for kernels. The CPU's are missing then: it says so for the first such node, or after it
 * has inserted casts from 16 to 32 bits, which PagedAttention does not take.
 */
function faultOf(path: string): string | null {
  try {
    const options = { device: "cpu", deviceId: 0, numThreads: 1, graphOptimizationLevel: "disabled" } as const;
    // Shapes that contradict each other are errors, not warnings.
    const configEntries = { "session.strict_shape_type_inference": "1" };
    Session.load(path, { ...options, externalDataFolder, configEntries })[Symbol.dispose]();
    return null;
  } catch (error) {
    const { message } = error as Error;
    const isOfTheCpu = /^Could not find an implementation for |InsertedPrecisionFreeCast_/.test(message);
    return isOfTheCpu ? null : message;
  }
}

test("every node of every graph for cuda has the inputs, attributes, types and shapes of its schema", async () => {
  const names = await writeCudaGraphs(join(folder.path, "graphs"));
  const faults = names.flatMap((name) => {
    const fault = faultOf(join(folder.path, "graphs", name));
    return fault === null ? [] : [`${name}: ${fault}`];
  });
  expect(faults).toEqual([]);
  expect(names.length).toBeGreaterThan(300);
  expect(new Set(names).size).toBe(names.length);
});

/** A step's inputs for one layer of paged attention in bfloat16. */
function pagedGraph(change: { readonly table?: ElementType; readonly attribute?: string; readonly width?: number }) {
  const graph = new GraphBuilder("paged");
  const half = (name: string, shape: readonly (string | number)[]): Value => graph.input(name, "bfloat16", shape);
  const cache = ["blocks", 256, 2, 64];
  const [attended] = graph.addNode({
    name: "attention",
    operator: "PagedAttention",
    domain: microsoftDomain,
    inputs: [
      half("query", ["tokens", 256]),
      half("key", ["tokens", 128]),
      half("value", ["tokens", 128]),
      half("key_cache", cache),
      half("value_cache", cache),
      graph.input("cumulative", "int32", ["sequences"]),
      graph.input("past", "int32", ["rows"]),
      graph.input("table", change.table ?? "int32", ["rows", "columns"]),
    ],
    attributes: {
      num_heads: { kind: "int", value: 4 },
      kv_num_heads: { kind: "int", value: 2 },
      ...(change.attribute !== undefined && { [change.attribute]: { kind: "int", value: 1 } }),
    },
    outputs: [{ name: "attended", elementType: "bfloat16", shape: ["tokens", 256] }],
  });
  const width = graph.input("width", "bfloat16", [change.width ?? 256]);
  const [product] = graph.addNode({
    name: "product",
    operator: "Mul",
    domain: standardDomain,
    inputs: [attended, width],
    outputs: [{ name: "product", elementType: "bfloat16", shape: ["tokens", 256] }],
  });
  graph.output(product);
  return graph;
}

async function faultOfPaged(change: Parameters<typeof pagedGraph>[0]): Promise<string | null> {
  const path = join(folder.path, "paged.onnx");
  await writeFile(path, pagedGraph(change).encode());
  return faultOf(path);
}

test("paged attention as its schema has it is no fault", async () => {
  expect(await faultOfPaged({})).toBeNull();
});

test.for([
  ["an input's type", { table: "int64" }, /Type 'tensor\(int64\)' of input parameter \(table\) of operator/],
  ["an attribute's name", { attribute: "num_head" }, /Unrecognized attribute: num_head for operator PagedAttention/],
  ["a shape", { width: 255 }, /Incompatible dimensions/],
] as const)("finds %s that is not the schema's", async ([, change, message]) => {
  expect(await faultOfPaged(change)).toMatch(message);
});
