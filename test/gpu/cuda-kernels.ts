/** Looks nodes up among the kernels of ONNX Runtime's CUDA provider, as record-cuda-kernels.py recorded them. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import type { GraphBuilder, NodeDefinition } from "../../engine/graph/graph-builder.ts";
import type { Value } from "../../engine/graph/value.ts";
import type { ElementType } from "../../engine/weights/stored-tensor.ts";

type Formal = readonly [name: string, typeParameter: string];
type Schema = readonly [domain: string, operator: string, version: number, inputs: Formal[], outputs: Formal[]];
type Kernel = readonly [
  domain: string,
  operator: string,
  first: number,
  last: number | null,
  types: Readonly<Record<string, readonly string[]>>,
];

const recorded = JSON.parse(readFileSync(fileURLToPath(new URL("cuda-kernels.json", import.meta.url)), "utf8")) as {
  readonly kernels: readonly Kernel[];
  readonly schemas: readonly Schema[];
};

/** `DataType` spells it otherwise. */
const typeNames: Partial<Record<ElementType, string>> = { float32: "float", float8e4m3: "float8e4m3fn" };

const microsoftOpset = 1;

/** What keeps the node from running on CUDA, and null where nothing does. */
function missingKernel(node: NodeDefinition, standardOpset: number): string | null {
  const { domain, operator } = node;
  const opset = domain === "" ? standardOpset : microsoftOpset;
  const schema = recorded.schemas
    .filter(([ofDomain, name, version]) => ofDomain === domain && name === operator && version <= opset)
    .toSorted((left, right) => right[2] - left[2])[0];
  if (schema === undefined) return `${operator}: no kernel of any type`;
  const [, , version, inputs, outputs] = schema;
  const types = new Map([...typesOf(inputs, node.inputs), ...typesOf(outputs, node.outputs)]);
  const fits = recorded.kernels.some(
    ([ofDomain, name, first, last, constraints]) =>
      ofDomain === domain &&
      name === operator &&
      // A kernel without a last version is of exactly the version it starts with: ONNX Runtime's own rule.
      (first === version || (first < version && last !== null && version <= last)) &&
      Object.entries(constraints).every(([parameter, allowed]) => {
        const type = types.get(parameter);
        return type === undefined || allowed.includes(type);
      }),
  );
  return fits ? null : `${operator} ${version}: no kernel for ${JSON.stringify(Object.fromEntries(types))}`;
}

/** By type parameter and by name, as kernels may constrain either. The last formal repeats where it is variadic. */
function typesOf(formals: readonly Formal[], values: readonly (Value | null)[]): [string, string][] {
  return values.flatMap((value, index) => {
    const formal = formals[Math.min(index, formals.length - 1)];
    if (value === null || value.name === "" || formal === undefined) return [];
    const type = typeNames[value.elementType] ?? value.elementType;
    return formal.map((key): [string, string] => [key, type]);
  });
}

/** Of a graph's nodes, those that the CUDA provider has no kernel for: `{name}: {reason}`. */
export function nodesWithoutCudaKernel({ nodes, opset }: GraphBuilder): string[] {
  return nodes.flatMap((node) => {
    const reason = missingKernel(node, opset);
    return reason === null ? [] : [`${node.name}: ${reason}`];
  });
}
