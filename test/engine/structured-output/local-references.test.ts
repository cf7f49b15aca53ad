/** References by identifiers allow the values that Ajv finds valid. */
import { expect, test } from "vitest";

import { verdictsOf } from "./schema-readers.ts";

const text = { type: "string" };
const tree = { type: "object", properties: { name: text, nodes: { type: "array" } }, required: ["name"] };

test.for<[string, object, readonly unknown[]]>([
  ["an anchor", { $ref: "#name", $defs: { a: { $anchor: "name", ...text } } }, ["x", 1]],
  [
    "the URI of a definition, as TypeBox writes it",
    { $ref: "A", $defs: { A: { $id: "A", type: "array", items: { $ref: "B" } }, B: { $id: "B", ...text } } },
    [["x"], [1], "x"],
  ],
  [
    "the URI of the whole schema",
    {
      $id: "https://example.com/tree.json",
      ...tree,
      properties: { name: text, next: { $ref: "https://example.com/tree.json" }, own: { $ref: "#/$defs/n" } },
      $defs: { n: { type: "null" } },
    },
    [
      { name: "a", next: { name: "b" } },
      { name: "a", next: {} },
      { name: "a", own: null },
      { name: "a", own: 1 },
    ],
  ],
  [
    "a relative URI and a fragment",
    {
      $id: "https://example.com/a/root.json",
      $ref: "item.json#/$defs/kind",
      $defs: { item: { $id: "item.json", $defs: { kind: { enum: ["k"] } } } },
    },
    ["k", "x"],
  ],
  [
    "a place within a definition of its own",
    {
      $ref: "#/$defs/item",
      $defs: {
        item: { $id: "item", type: "array", items: { $ref: "#/$defs/kind" }, $defs: { kind: { enum: ["k"] } } },
      },
    },
    [["k"], ["x"]],
  ],
  [
    "the only dynamic anchor",
    {
      $dynamicAnchor: "node",
      ...tree,
      properties: { name: text, nodes: { type: "array", items: { $dynamicRef: "#node" } } },
    },
    [
      { name: "a", nodes: [{ name: "b", nodes: [] }] },
      { name: "a", nodes: [{}] },
    ],
  ],
  [
    "properties that are called like keywords",
    { type: "object", properties: { $id: text, $ref: text, $anchor: { $ref: "#/properties/$id" } } },
    [{ $id: "a", $ref: "b", $anchor: "c" }, { $anchor: 1 }],
  ],
  ["data that look like a reference", { const: { $ref: "nowhere" } }, [{ $ref: "nowhere" }, {}]],
])("%s is followed", ([, schema, values]) => {
  const { ours, ofAjv } = verdictsOf(schema, values);
  expect(ours).toEqual(ofAjv);
});
