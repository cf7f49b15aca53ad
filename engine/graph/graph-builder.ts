/**
 * Builds an ONNX graph node by node. Operators are functions of their own (`standard-ops.ts`, `contrib-ops.ts`, and
 * the other files `*-ops.ts`); they check element types and shapes and then call `addNode` here.
 */
import { EngineError } from "../contract/errors.ts";
import type { ElementType, ExternalTensor, StoredTensor } from "../weights/stored-tensor.ts";
import { constantBytes, type ConstantData } from "./constant-bytes.ts";
import { externalDataLocation } from "./external-data.ts";
import {
  encodeModel,
  DATA_LOCATION_EXTERNAL,
  onnxAttributeTypes,
  onnxDataTypes,
  type AttributeProto,
  type GraphProto,
  type NodeProto,
  type TensorProto,
  type ValueInfoProto,
} from "./onnx-schema.ts";
import { describeShape, describeValue, sameShape, type Shape, type Value } from "./value.ts";

/** Operators of the ONNX standard have the empty domain. */
export const standardDomain = "";
/** ONNX Runtime's own operators (`docs/ContribOperators.md` of its repository). */
export const microsoftDomain = "com.microsoft";
/** Operators of ONNX's extension for classical machine learning, which full builds of ONNX Runtime have. */
export const mlDomain = "ai.onnx.ml";

// The oldest versions that have every operator that most graphs use. ONNX Runtime 1.30 reads up to IR 13 and opset 26.
const IR_VERSION = 10;
const OLDEST_OPSET = 21;
const MICROSOFT_OPSET = 1;
const ML_OPSET = 1;

export type AttributeValue =
  | { readonly kind: "int"; readonly value: number }
  | { readonly kind: "ints"; readonly value: readonly number[] }
  | { readonly kind: "float"; readonly value: number }
  | { readonly kind: "string"; readonly value: string }
  | { readonly kind: "graph"; readonly value: Branch };

/** A graph within a node. It reads values of the graph around it. */
export interface Branch {
  readonly name: string;
  readonly nodes: readonly NodeDefinition[];
  /** The values that become the node's outputs. */
  readonly outputs: readonly Value[];
}

export interface NodeDefinition {
  readonly name: string;
  readonly operator: string;
  readonly domain: string;
  /** Version of the standard that introduced the operator; left out if `oldestOpset` has it. */
  readonly opset?: number;
  /** Null stands for an omitted optional input. */
  readonly inputs: readonly (Value | null)[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  /** An empty name stands for an omitted optional output. */
  readonly outputs: readonly Value[];
}

/** One value for each element of a tuple. */
export type ValuePerElement<Elements extends readonly unknown[]> = { -readonly [Index in keyof Elements]: Value };

/** Mutable: nodes and initializers accumulate until `encode`. */
export class GraphBuilder {
  readonly #name: string;
  #nodes: NodeDefinition[] = [];
  #opset = OLDEST_OPSET;
  #usesMl = false;
  readonly #initializers: TensorProto[] = [];
  /** Bytes of the constants, by name. */
  readonly #constants = new Map<string, Uint8Array>();
  readonly #tensors = new Map<string, { readonly stored: StoredTensor; readonly value: Value }>();
  #externalBytes = 0;
  readonly #inputs = new Map<string, ValueInfoProto>();
  #outputs: Value[] = [];
  readonly #values = new Map<string, Value>();

  constructor(name: string) {
    this.#name = name;
  }

  /** In the order of computation; the live list. */
  get nodes(): readonly NodeDefinition[] {
    return this.#nodes;
  }

  /** The live list. */
  get outputs(): readonly Value[] {
    return this.#outputs;
  }

  /** The lowest version of the standard's operators that has every node. */
  get opset(): number {
    return this.#opset;
  }

  /** In the order of their first use. */
  get externalTensors(): ExternalTensor[] {
    return Array.from(this.#tensors, ([name, { stored, value }]) => ({
      name,
      elementType: stored.elementType as ExternalTensor["elementType"],
      // `externalTensor` has set it to sizes.
      shape: value.shape as readonly number[],
      file: stored.file,
      byteOffset: stored.byteOffset,
      byteLength: stored.byteLength,
    }));
  }

  /** Total size of external tensors. */
  get externalBytes(): number {
    return this.#externalBytes;
  }

  /** Branches may name the same input. */
  input(name: string, elementType: ElementType, shape: Shape): Value {
    const known = this.#inputs.has(name) ? this.#values.get(name) : undefined;
    if (known?.elementType === elementType && sameShape(known.shape, shape)) return known;
    const value = this.#define({ name, elementType, shape }, `input ${name}`);
    this.#inputs.set(name, toValueInfo(value));
    return value;
  }

  /** Makes a value an output of the graph, under the value's own name. */
  output(value: Value, shape: Shape = value.shape): void {
    if (!sameShape(value.shape, shape)) {
      throw new EngineError(
        "internal",
        `Output ${describeValue(value)} of graph ${this.#name} should have shape ${describeShape(shape)}.`,
      );
    }
    this.#outputs.push(value);
  }

  /** A small constant, stored in the model file. Equal names must have equal contents and are stored once. */
  constant(name: string, elementType: ElementType, shape: readonly number[], data: ConstantData): Value {
    const known = this.#values.get(name);
    const knownData = this.#constants.get(name);
    const rawData = constantBytes(name, elementType, shape, data);
    if (known?.elementType === elementType && sameShape(known.shape, shape) && knownData !== undefined) {
      if (Buffer.compare(knownData, rawData) === 0) return known;
    }
    const value = this.#define({ name, elementType, shape }, `constant ${name}`);
    this.#constants.set(name, rawData);
    this.#initializers.push({ name, dims: shape, dataType: onnxDataTypes[elementType], rawData });
    return value;
  }

  /**
   * A tensor in a separate file, which ONNX Runtime maps. Its location is written relative to the root of the file
   * system: see `external-data.ts`. Branches may name the same tensor, which is stored once.
   */
  externalTensor(name: string, stored: StoredTensor, shape: readonly number[] = stored.shape): Value {
    const known = this.#tensors.get(name);
    if (known !== undefined && known.stored.file === stored.file && known.stored.byteOffset === stored.byteOffset) {
      return known.value;
    }
    const value = this.#define({ name, elementType: stored.elementType, shape }, `initializer ${name}`);
    this.#tensors.set(name, { stored, value });
    this.#externalBytes += stored.byteLength;
    this.#initializers.push({
      name,
      dims: shape,
      dataType: onnxDataTypes[stored.elementType],
      dataLocation: DATA_LOCATION_EXTERNAL,
      externalData: [
        { key: "location", value: externalDataLocation(stored.file) },
        { key: "offset", value: String(stored.byteOffset) },
        { key: "length", value: String(stored.byteLength) },
      ],
    });
    return value;
  }

  /** For operator functions only. The caller has checked the inputs and states types and shapes of the outputs. */
  addNode<const Outputs extends readonly Value[]>(
    definition: NodeDefinition & { readonly outputs: Outputs },
  ): ValuePerElement<Outputs> {
    const what = `node ${definition.name} (${definition.operator})`;
    for (const input of definition.inputs) {
      if (input !== null && this.#values.get(input.name) !== input) {
        throw new EngineError("internal", `Input ${describeValue(input)} of ${what} is not a value of this graph.`);
      }
    }
    const outputs = definition.outputs.map((output) => (output.name === "" ? output : this.#define(output, what)));
    this.#nodes.push({ ...definition, outputs });
    this.#usesMl ||= definition.domain === mlDomain;
    this.#opset = Math.max(this.#opset, definition.opset ?? OLDEST_OPSET);
    return outputs as ValuePerElement<Outputs>;
  }

  /**
   * The nodes that `build` adds and the values that it returns, as a graph of their own. The graph around it cannot read
   * its values; its constants, tensors and inputs belong to the graph around it.
   *
   * @param build Returns the outputs of the branch, in addition to those that it names with `output`.
   */
  branch(name: string, build: () => readonly Value[]): Branch {
    const outer = { nodes: this.#nodes, outputs: this.#outputs };
    const nodes: NodeDefinition[] = [];
    this.#nodes = nodes;
    this.#outputs = [];
    try {
      const returned = build();
      const outputs = [...this.#outputs, ...returned];
      const made = new Set(nodes.flatMap((node) => node.outputs));
      const foreign = outputs.find((output) => !made.has(output));
      if (foreign === undefined) return { name, nodes, outputs };
      throw new EngineError("internal", `Branch ${name} returns ${describeValue(foreign)}, which it does not compute.`);
    } finally {
      this.#nodes = outer.nodes;
      this.#outputs = outer.outputs;
      for (const { outputs } of nodes) for (const output of outputs) this.#values.delete(output.name);
    }
  }

  /** The ONNX model as protobuf bytes. */
  encode(): Uint8Array {
    return encodeModel({
      irVersion: IR_VERSION,
      producerName: "fovea",
      opsetImport: [
        { domain: standardDomain, version: this.#opset },
        { domain: microsoftDomain, version: MICROSOFT_OPSET },
        ...(this.#usesMl ? [{ domain: mlDomain, version: ML_OPSET }] : []),
      ],
      graph: {
        name: this.#name,
        node: this.#nodes.map((node) => toNode(node, asNamed)),
        initializer: this.#initializers,
        input: [...this.#inputs.values()],
        output: this.#outputs.map(toValueInfo),
      },
    });
  }

  #define(value: Value, what: string): Value {
    if (this.#values.has(value.name)) {
      throw new EngineError(
        "internal",
        `Graph ${this.#name} has two values named ${value.name}; the second is ${what}.`,
      );
    }
    this.#values.set(value.name, value);
    return value;
  }
}

function toValueInfo(value: Value): ValueInfoProto {
  const dim = value.shape.map((dimension) =>
    typeof dimension === "number" ? { dimValue: dimension } : { dimParam: dimension },
  );
  return { name: value.name, type: { tensorType: { elemType: onnxDataTypes[value.elementType], shape: { dim } } } };
}

/** Names of the values of a branch, by their names in the builder, which the graph around it may use too. */
type Renaming = ReadonlyMap<string, string>;

const asNamed: Renaming = new Map();

function toNode(definition: NodeDefinition, renaming: Renaming): NodeProto {
  const { name, operator, domain, inputs, outputs, attributes = {} } = definition;
  const nameOf = (value: Value | null): string => (value === null ? "" : (renaming.get(value.name) ?? value.name));
  return {
    name,
    opType: operator,
    domain,
    input: inputs.map(nameOf),
    output: outputs.map(nameOf),
    attribute: Object.entries(attributes).map(([key, value]) => toAttribute(key, value, renaming)),
  };
}

function toGraph({ name, nodes, outputs }: Branch, outer: Renaming): GraphProto {
  const renaming = new Map(outer);
  for (const node of nodes) {
    for (const output of node.outputs) if (output.name !== "") renaming.set(output.name, `${name}/${output.name}`);
  }
  const toOutput = (output: Value): ValueInfoProto => toValueInfo({ ...output, name: renaming.get(output.name)! });
  const node = nodes.map((each) => toNode(each, renaming));
  return { name, node, initializer: [], input: [], output: outputs.map(toOutput) };
}

function toAttribute(name: string, attribute: AttributeValue, renaming: Renaming): AttributeProto {
  switch (attribute.kind) {
    case "int":
      return { name, type: onnxAttributeTypes.int, i: attribute.value };
    case "ints":
      return { name, type: onnxAttributeTypes.ints, ints: attribute.value };
    case "float":
      return { name, type: onnxAttributeTypes.float, f: attribute.value };
    case "string":
      return { name, type: onnxAttributeTypes.string, s: new TextEncoder().encode(attribute.value) };
    case "graph":
      return { name, type: onnxAttributeTypes.graph, g: toGraph(attribute.value, renaming) };
  }
  return attribute satisfies never;
}
