import { expect, test } from "vitest";

import { multiHeadAttention } from "../../../engine/graph/contrib-ops.ts";
import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { splitRows } from "../../../engine/graph/grouping-ops.ts";
import { peakBytes } from "../../../engine/graph/peak-bytes.ts";
import { add, concat, multiply, reshape } from "../../../engine/graph/standard-ops.ts";

const sizes = new Map([["N", 10]]);

test("a value takes memory from the node that makes it to the last node that reads it", () => {
  const graph = new GraphBuilder("chain");
  const input = graph.input("input", "float32", ["N", 4]);
  const first = add(graph, "first", input, input);
  const second = add(graph, "second", first, first);
  const third = add(graph, "third", second, second);
  graph.output(add(graph, "output", third, first));
  // first is held to the end, together with second while third is made: 3 * 10 * 4 floats.
  expect(peakBytes(graph, sizes)).toBe(3 * 160);
});

test("inputs and outputs have their own memory", () => {
  const graph = new GraphBuilder("single");
  const input = graph.input("input", "float32", ["N", 4]);
  graph.output(multiply(graph, "output", input, input));
  expect(peakBytes(graph, sizes)).toBe(0);
});

test("a reshaped value shares its memory, which is held until the last read of either", () => {
  const graph = new GraphBuilder("reshaped");
  const input = graph.input("input", "float32", ["N", 4]);
  const target = graph.constant("target", "int64", [1], [-1]);
  const made = add(graph, "made", input, input);
  const flat = reshape(graph, "flat", made, target, ["4 * N"]);
  graph.output(add(graph, "output", flat, flat));
  expect(peakBytes(graph, sizes)).toBe(160);
});

test("parts of unknown sizes take as much memory together as their whole", () => {
  const graph = new GraphBuilder("parts");
  const input = graph.input("input", "float32", ["N", 4]);
  const parts = splitRows(graph, "parts", input, graph.input("counts", "int64", [3]));
  const joined = concat(graph, "joined", parts, 0, "N");
  graph.output(add(graph, "output", joined, joined));
  expect(peakBytes(graph, sizes)).toBe(2 * 160);
});

test("the unknown size of a reshape follows from its input", () => {
  const graph = new GraphBuilder("learned");
  const input = graph.input("input", "float32", ["N", 4]);
  const target = graph.constant("target", "int64", [2], [-1, 2]);
  const pairs = reshape(graph, "pairs", input, target, ["2 * N", 2]);
  const doubled = add(graph, "doubled", pairs, pairs);
  graph.output(add(graph, "output", doubled, doubled));
  expect(peakBytes(graph, sizes)).toBe(20 * 2 * 4);
});

test("attention with a bias holds its scores", () => {
  const graph = new GraphBuilder("attention");
  const query = graph.input("query", "float32", ["B", "N", 16]);
  const parts = { query, key: query, value: query, numHeads: 2 };
  graph.output(multiHeadAttention(graph, "plain", parts));
  const plain = peakBytes(graph, new Map([...sizes, ["B", 3]]));
  graph.output(
    multiHeadAttention(graph, "biased", { ...parts, bias: graph.input("bias", "float32", [1, 1, "N", "N"]) }),
  );
  // Query, key and value of 3 * 10 tokens; scores of 2 heads for each pair of a sequence's tokens.
  expect(plain).toBe(3 * (3 * 10) * 16 * 4);
  expect(peakBytes(graph, new Map([...sizes, ["B", 3]]))).toBe(plain + 2 * 3 * 10 * 10 * 4);
});
