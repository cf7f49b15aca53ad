/**
 * The part of ONNX's protobuf schema that the builder writes, its encoder and its decoder.
 *
 * Field numbers are those of `onnx.proto3` of ONNX's IR specification; the names are ours where camelCase differs.
 */
import protobuf from "protobufjs/light.js";

import type { ElementType } from "../weights/stored-tensor.ts";

/** `TensorProto.DataType`. */
export const onnxDataTypes: Readonly<Record<ElementType, number>> = {
  float32: 1,
  uint8: 2,
  int8: 3,
  uint16: 4,
  int16: 5,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
  float64: 11,
  uint32: 12,
  uint64: 13,
  complex64: 14,
  bfloat16: 16,
  float8e4m3: 17,
  float8e4m3fnuz: 18,
  float8e5m2: 19,
  float8e5m2fnuz: 20,
  float8e8m0: 24,
};

/** `AttributeProto.AttributeType`. */
export const onnxAttributeTypes = { float: 1, int: 2, string: 3, graph: 5, floats: 6, ints: 7 } as const;

/** `TensorProto.DataLocation.EXTERNAL`. */
export const DATA_LOCATION_EXTERNAL = 1;

export interface AttributeProto {
  readonly name: string;
  readonly type: number;
  readonly f?: number;
  readonly i?: number;
  readonly s?: Uint8Array;
  readonly g?: GraphProto;
  readonly floats?: readonly number[];
  readonly ints?: readonly number[];
}

export interface NodeProto {
  readonly name: string;
  readonly opType: string;
  readonly domain: string;
  /** "" stands for an omitted optional input. */
  readonly input: readonly string[];
  readonly output: readonly string[];
  readonly attribute: readonly AttributeProto[];
}

export interface TensorProto {
  readonly name: string;
  readonly dims: readonly number[];
  readonly dataType: number;
  readonly rawData?: Uint8Array;
  readonly externalData?: readonly { readonly key: string; readonly value: string }[];
  readonly dataLocation?: number;
}

export interface ValueInfoProto {
  readonly name: string;
  readonly type: {
    readonly tensorType: {
      readonly elemType: number;
      readonly shape: { readonly dim: readonly ({ readonly dimValue: number } | { readonly dimParam: string })[] };
    };
  };
}

export interface GraphProto {
  readonly name: string;
  readonly node: readonly NodeProto[];
  readonly initializer: readonly TensorProto[];
  readonly input: readonly ValueInfoProto[];
  readonly output: readonly ValueInfoProto[];
}

export interface ModelProto {
  readonly irVersion: number;
  readonly producerName: string;
  readonly graph: GraphProto;
  readonly opsetImport: readonly { readonly domain: string; readonly version: number }[];
}

const root = protobuf.Root.fromJSON({
  nested: {
    StringStringEntryProto: { fields: { key: { type: "string", id: 1 }, value: { type: "string", id: 2 } } },
    AttributeProto: {
      fields: {
        name: { type: "string", id: 1 },
        f: { type: "float", id: 2 },
        i: { type: "int64", id: 3 },
        s: { type: "bytes", id: 4 },
        g: { type: "GraphProto", id: 6 },
        floats: { rule: "repeated", type: "float", id: 7 },
        ints: { rule: "repeated", type: "int64", id: 8 },
        type: { type: "int32", id: 20 },
      },
    },
    NodeProto: {
      fields: {
        input: { rule: "repeated", type: "string", id: 1 },
        output: { rule: "repeated", type: "string", id: 2 },
        name: { type: "string", id: 3 },
        opType: { type: "string", id: 4 },
        attribute: { rule: "repeated", type: "AttributeProto", id: 5 },
        domain: { type: "string", id: 7 },
      },
    },
    TensorProto: {
      fields: {
        dims: { rule: "repeated", type: "int64", id: 1 },
        dataType: { type: "int32", id: 2 },
        name: { type: "string", id: 8 },
        rawData: { type: "bytes", id: 9 },
        externalData: { rule: "repeated", type: "StringStringEntryProto", id: 13 },
        dataLocation: { type: "int32", id: 14 },
      },
    },
    Dimension: {
      oneofs: { value: { oneof: ["dimValue", "dimParam"] } },
      fields: { dimValue: { type: "int64", id: 1 }, dimParam: { type: "string", id: 2 } },
    },
    TensorShapeProto: { fields: { dim: { rule: "repeated", type: "Dimension", id: 1 } } },
    TensorTypeProto: { fields: { elemType: { type: "int32", id: 1 }, shape: { type: "TensorShapeProto", id: 2 } } },
    TypeProto: { fields: { tensorType: { type: "TensorTypeProto", id: 1 } } },
    ValueInfoProto: { fields: { name: { type: "string", id: 1 }, type: { type: "TypeProto", id: 2 } } },
    GraphProto: {
      fields: {
        node: { rule: "repeated", type: "NodeProto", id: 1 },
        name: { type: "string", id: 2 },
        initializer: { rule: "repeated", type: "TensorProto", id: 5 },
        input: { rule: "repeated", type: "ValueInfoProto", id: 11 },
        output: { rule: "repeated", type: "ValueInfoProto", id: 12 },
      },
    },
    OperatorSetIdProto: { fields: { domain: { type: "string", id: 1 }, version: { type: "int64", id: 2 } } },
    ModelProto: {
      fields: {
        irVersion: { type: "int64", id: 1 },
        producerName: { type: "string", id: 2 },
        graph: { type: "GraphProto", id: 7 },
        opsetImport: { rule: "repeated", type: "OperatorSetIdProto", id: 8 },
      },
    },
  },
});

const modelType = root.lookupType("ModelProto");

export function encodeModel(model: ModelProto): Uint8Array {
  return modelType.encode(modelType.fromObject(model)).finish();
}

/** The reverse direction, for tools that rewrite a graph. Fields that the builder does not write are lost. */
export function decodeModel(bytes: Uint8Array): ModelProto {
  return modelType.toObject(modelType.decode(bytes), { longs: Number, arrays: true }) as ModelProto;
}

const valueInfoType = root.lookupType("ValueInfoProto");
const tensorType = root.lookupType("TensorProto");
const nodeType = root.lookupType("NodeProto");

/** An input or output of a graph; without the shape if the file does not state it. */
export function decodeValueInfo(bytes: Uint8Array): Partial<ValueInfoProto> {
  return valueInfoType.toObject(valueInfoType.decode(bytes), { longs: Number });
}

export function decodeTensor(bytes: Uint8Array): Partial<TensorProto> {
  return tensorType.toObject(tensorType.decode(bytes), { longs: Number });
}

export function decodeNode(bytes: Uint8Array): Partial<NodeProto> {
  return nodeType.toObject(nodeType.decode(bytes), { longs: Number });
}
