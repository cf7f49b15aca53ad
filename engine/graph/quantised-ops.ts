/** Linear layers and embeddings over integer weights. */
import { microsoftDomain, standardDomain, type AttributeValue, type GraphBuilder } from "./graph-builder.ts";
import { checkElementType, checkRank, checkShape, floats, knownSize, nodeError } from "./node-checks.ts";
import { withLastSize, type Value } from "./value.ts";

const int = (value: number): AttributeValue => ({ kind: "int", value });

export interface BlockwiseWeight {
  /** uint8 [out, blocks, blockSize * bits / 8]. */
  readonly weight: Value;
  /** uint8 [out * ceil(blocks * bits / 8)]; left out if all are 2^(bits - 1). */
  readonly zeroPoints?: Value | null;
  /** float [out * blocks]. */
  readonly scales: Value;
  readonly bits: 4 | 8;
  readonly blockSize: number;
}

/** `input [..., in] x weight^T` with block-wise dequantised weights. */
export function matMulNBits(
  graph: GraphBuilder,
  name: string,
  {
    input,
    quantised,
    bias,
    quantisesActivations,
  }: {
    readonly input: Value;
    readonly quantised: BlockwiseWeight;
    readonly bias: Value | null;
    /** Whether activations may be rounded to int8 per block as well, which is what CPUs and WebGPU are fast at. */
    readonly quantisesActivations: boolean;
  },
): Value {
  const { weight, scales, zeroPoints = null, bits, blockSize } = quantised;
  const node = { name, operator: "MatMulNBits" };
  const inSize = knownSize(node, input, -1);
  const outSize = knownSize(node, weight, 0);
  const numBlocks = Math.ceil(inSize / blockSize);
  checkElementType(node, input, ...floats);
  checkElementType(node, weight, "uint8");
  checkElementType(node, scales, input.elementType);
  checkShape(node, weight, [outSize, numBlocks, (blockSize * bits) / 8]);
  checkShape(node, scales, [outSize * numBlocks]);
  if (zeroPoints !== null) {
    checkElementType(node, zeroPoints, "uint8");
    checkShape(node, zeroPoints, [outSize * Math.ceil((numBlocks * bits) / 8)]);
  }
  if (bias !== null) {
    checkElementType(node, bias, input.elementType);
    checkShape(node, bias, [outSize]);
  }
  return graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: withoutTrailingNulls([input, weight, scales, zeroPoints, null, bias]),
    attributes: {
      K: int(inSize),
      N: int(outSize),
      bits: int(bits),
      block_size: int(blockSize),
      // Unset, or int8.
      accuracy_level: int(quantisesActivations ? 4 : 0),
    },
    outputs: [{ name, elementType: input.elementType, shape: withLastSize(input.shape, outSize) }],
  })[0];
}

/** The fifth input, which no graph has, is the group of each weight. */
function withoutTrailingNulls(inputs: readonly (Value | null)[]): readonly (Value | null)[] {
  return inputs.slice(0, inputs.findLastIndex((input) => input !== null) + 1);
}

/** Dequantised rows of a block-wise quantised `[rows, columns]` table, in the byte layout of `matMulNBits`. */
export function gatherBlockQuantized(
  graph: GraphBuilder,
  name: string,
  {
    indices,
    quantised,
    columns,
  }: { readonly indices: Value; readonly quantised: BlockwiseWeight; readonly columns: number },
): Value {
  const { weight, scales, bits, blockSize } = quantised;
  const node = { name, operator: "GatherBlockQuantized" };
  checkElementType(node, indices, "int32", "int64");
  checkElementType(node, weight, "uint8");
  checkRank(node, weight, 2);
  checkShape(node, weight, [weight.shape[0]!, (columns * bits) / 8]);
  if (columns % blockSize !== 0)
    throw nodeError(node, `${columns} columns are not a multiple of block size ${blockSize}.`);
  checkShape(node, scales, [weight.shape[0]!, columns / blockSize]);
  return graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [weight, indices, scales],
    attributes: { bits: int(bits), block_size: int(blockSize), gather_axis: int(0), quantize_axis: int(1) },
    outputs: [{ name, elementType: scales.elementType, shape: [...indices.shape, columns] }],
  })[0];
}

/** uint8 `round(input / scale) + zeroPoint` of [M, K], one scale per row: scales and zero points are [M, 1]. */
export function quantizeLinearPerRow(
  graph: GraphBuilder,
  name: string,
  { input, scales, zeroPoints }: { readonly input: Value; readonly scales: Value; readonly zeroPoints: Value },
): Value {
  const node = { name, operator: "QuantizeLinear" };
  checkElementType(node, input, "float32");
  checkElementType(node, zeroPoints, "uint8");
  checkRank(node, input, 2);
  checkShape(node, scales, [input.shape[0]!, 1]);
  checkShape(node, zeroPoints, [input.shape[0]!, 1]);
  return graph.addNode({
    ...node,
    domain: standardDomain,
    inputs: [input, scales, zeroPoints],
    // One block is a whole row. The form with one scale per index of an axis is slower, and accepts vectors only.
    attributes: { axis: int(1), block_size: int(knownSize(node, input, 1)) },
    outputs: [{ name, elementType: "uint8", shape: input.shape }],
  })[0];
}

/**
 * float `((input - inputZeroPoint) x weight) * inputScale * weightScales` for uint8 [M, K] and int8 [K, N], with one
 * scale for the input and one per column for the weight.
 */
export function matMulIntegerToFloat(
  graph: GraphBuilder,
  name: string,
  inputs: {
    readonly input: Value;
    readonly weight: Value;
    readonly inputScale: Value;
    readonly weightScales: Value;
    readonly inputZeroPoint: Value;
  },
): Value {
  const { input, weight, inputScale, weightScales, inputZeroPoint } = inputs;
  const node = { name, operator: "MatMulIntegerToFloat" };
  checkElementType(node, input, "uint8");
  checkElementType(node, weight, "int8");
  checkElementType(node, inputScale, "float32");
  checkElementType(node, weightScales, "float32");
  checkElementType(node, inputZeroPoint, "uint8");
  checkRank(node, input, 2);
  checkShape(node, weight, [input.shape[1]!, weight.shape[1]!]);
  checkShape(node, inputScale, []);
  checkShape(node, weightScales, [weight.shape[1]!]);
  checkShape(node, inputZeroPoint, []);
  return graph.addNode({
    ...node,
    domain: microsoftDomain,
    inputs: [input, weight, inputScale, weightScales, inputZeroPoint],
    outputs: [{ name, elementType: "float32", shape: [input.shape[0]!, weight.shape[1]!] }],
  })[0];
}
