/** Linear layers for every weight format. Activations are flat: `[tokens, features]`. */
import { EngineError, invariant } from "../contract/errors.ts";
import type { GraphBuilder, ValuePerElement } from "../graph/graph-builder.ts";
import { matMulNBits } from "../graph/quantised-ops.ts";
import { add, cast, extractColumns, gatherColumns, gemm, split } from "../graph/standard-ops.ts";
import type { Value } from "../graph/value.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import type { GraphContext } from "./graph-context.ts";
import { int8Product, type Int8Weight } from "./int8-product.ts";
import { isForPrompts, linearForm, sameForm, sameOrder, type LinearForm } from "./kept-format.ts";
import { adapterMatrices, addLowRank } from "./low-rank.ts";
import type { PreparedTensors } from "./weight-source.ts";

/** An `nn.Linear` of the checkpoint: tensors `{name}.weight` [outFeatures, inFeatures] and optionally `{name}.bias`. */
export interface LinearLayer {
  readonly name: string;
  readonly inFeatures: number;
  readonly outFeatures: number;
  readonly hasBias: boolean;
  /** Shape in the checkpoint if it is not [outFeatures, inFeatures], with the same elements in the same order. */
  readonly storedShape?: readonly number[];
}

/**
 * float [tokens, outFeatures], named `outputName`.
 *
 * @param format Of a layer whose integers the checkpoint does not provide; see `Precision.keepsIntegers`.
 */
export function linear(
  context: GraphContext,
  input: Value,
  layer: LinearLayer,
  format: WeightFormat,
  outputName: string = layer.name,
): Value {
  const form = linearForm(context, layer.name, format);
  return project(context, { outputName, weightName: layer.name }, input, [layer], form);
}

/** Products one after the other: outputs of the first are inputs of the second after a function of single elements. */
export interface LinearChain {
  /** With as many outputs as the second layer has inputs, or a multiple of them. */
  readonly first: readonly LinearLayer[];
  readonly second: LinearLayer;
}

/**
 * Computes `second(between(first(input)))`. If the second layer needs its inputs sorted by group (act-order), the rows
 * of the first layers' weights are stored in that order where this is possible, so that sorting takes no time.
 *
 * @param between Gets the outputs of the first layers, in either order.
 */
export function chainedLinear(
  context: GraphContext,
  name: string,
  input: Value,
  { first, second }: LinearChain,
  format: WeightFormat,
  between: (projected: JointProjection) => Value,
): Value {
  const { form, rowOrder } = chainedForm(context, { first, second }, format);
  const projected = jointLinear(context, name, input, first, format, rowOrder);
  const names = { outputName: second.name, weightName: second.name };
  return project(context, names, between(projected), [second], form);
}

/** The form of a chain's second layer, and the `rowOrder` of its first ones if they provide sorted inputs. */
export function chainedForm(
  context: GraphContext,
  { first, second }: LinearChain,
  format: WeightFormat,
): { readonly form: LinearForm; readonly rowOrder: string | undefined } {
  const form = linearForm(context, second.name, format);
  // Only integers in blocks are written row by row, and a bias would have to be sorted too.
  // Rows of updates by adapters are in order, too.
  const isSorted =
    context.adapterTokens === null &&
    form.inputOrder?.length === second.inFeatures &&
    first.every((layer) => !layer.hasBias && linearForm(context, layer.name, format).format.kind === "stored-blocks");
  if (!isSorted) return { form, rowOrder: undefined };
  return { form: { ...form, inputOrder: null }, rowOrder: `${second.name}.weight` };
}

export type JointProjection =
  /** float [tokens, sum of outFeatures]. */
  | { readonly kind: "packed"; readonly value: Value }
  /** One float [tokens, outFeatures] per layer. */
  | { readonly kind: "separate"; readonly values: readonly Value[] };

/**
 * Several linear layers over one input. Weights that are converted anyway become one matrix, which takes fewer nodes.
 * Weights that can stay in the checkpoint are multiplied one by one, and so are those that it quantises differently.
 *
 * @param rowOrder See `WeightRequest`.
 */
export function jointLinear(
  context: GraphContext,
  name: string,
  input: Value,
  layers: readonly LinearLayer[],
  format: WeightFormat,
  rowOrder?: string,
): JointProjection {
  const forms = layers.map((layer) => linearForm(context, layer.name, format));
  const [form, ...others] = forms;
  invariant(form !== undefined, `${name} has layers`);
  const names = (of: string): ProductNames => ({ outputName: of, weightName: of, rowOrder });
  const canBePacked = form.format.kind !== "plain" && others.every((other) => sameForm(form, other));
  if (layers.length > 1 && !canBePacked) {
    const values = layers.map((layer, index) => project(context, names(layer.name), input, [layer], forms[index]!));
    return { kind: "separate", values };
  }
  return { kind: "packed", value: project(context, names(name), input, layers, form) };
}

/** The parts of a joint projection one by one; `widths` are the features of each. */
export function separate<const Widths extends readonly number[]>(
  graph: GraphBuilder,
  name: string,
  projected: JointProjection,
  widths: Widths,
): ValuePerElement<Widths> {
  if (projected.kind === "separate") return projected.values as ValuePerElement<Widths>;
  return split(graph, `${name}.split`, projected.value, { axis: 1, sizes: widths });
}

export interface ProductNames {
  readonly outputName: string;
  readonly weightName: string;
  /** See `WeightRequest`. */
  readonly rowOrder?: string | undefined;
}

/** The product of the input and one matrix, which has the rows of all layers, with the updates of requests' adapters. */
export function project(
  context: GraphContext,
  names: ProductNames,
  input: Value,
  layers: readonly LinearLayer[],
  form: LinearForm,
): Value {
  const { outputName, weightName } = names;
  const matrices = adapterMatrices(context, { name: weightName, input, layers });
  if (matrices === null) return productOf(context, names, input, layers, form);
  const product = productOf(context, { ...names, outputName: `${outputName}.base` }, input, layers, form);
  return addLowRank(context, outputName, { input, product, matrices });
}

function productOf(
  context: GraphContext,
  names: ProductNames,
  unordered: Value,
  layers: readonly LinearLayer[],
  { format, inputOrder }: LinearForm,
): Value {
  const { graph, precision, device } = context;
  const { outputName, weightName } = names;
  const { inFeatures, hasBias } = layers[0]!;
  const outFeatures = numOutputs(layers);
  const { storedName, weight, scales, zeroPoints } = storedMatrix(context, names, layers, format);
  const isFused = (format.kind === "blockwise" || format.kind === "stored-blocks") && device === "cuda";
  // The fused kernels take no bias. ONNX Runtime would make one of an addition of [outFeatures], but not of [1, ...].
  const biasShape = isFused ? [1, outFeatures] : [outFeatures];
  const bias = hasBias ? packedBias(context, weightName, layers, biasShape) : null;

  if (isFused && format.kind === "blockwise") checkFusedLayout(weightName, format, inFeatures, outFeatures);
  // A weight with another number of inputs is rejected by name when weights are planned.
  const isOrdered = inputOrder?.length !== inFeatures;
  const input = isOrdered ? unordered : inOrder(context, `${weightName}.ordered`, unordered, inputOrder);

  switch (format.kind) {
    case "plain": {
      const weightValue = graph.externalTensor(`${storedName}.weight`, weight, [outFeatures, inFeatures]);
      return gemm(graph, outputName, input, weightValue, bias);
    }
    case "blockwise":
    case "stored-blocks": {
      invariant(scales !== null, "block-wise weights have scales");
      const storedScales = graph.externalTensor(`${storedName}.scales`, scales);
      const quantised = {
        weight: graph.externalTensor(`${storedName}.weight`, weight),
        // ONNX Runtime converts them once, when it loads the graph.
        scales: cast(graph, `${weightName}.scales.cast`, storedScales, precision.activations),
        zeroPoints: zeroPoints && graph.externalTensor(`${storedName}.zero_points`, zeroPoints),
        bits: format.bits,
        blockSize: format.blockSize,
      };
      if (!isFused) {
        return matMulNBits(graph, outputName, { input, quantised, bias, quantisesActivations: true });
      }
      const productName = bias === null ? outputName : `${outputName}.unbiased`;
      const product = matMulNBits(graph, productName, { input, quantised, bias: null, quantisesActivations: false });
      return bias === null ? product : add(graph, outputName, product, bias);
    }
    case "per-channel-int8":
    case "stored-channels": {
      const productName = bias === null ? outputName : `${outputName}.unbiased`;
      const product = int8Product(context, productName, input, int8Weight(context, names, layers, format));
      return bias === null ? product : add(graph, outputName, product, bias);
    }
  }
  return format satisfies never;
}

/** The matrix of the layers in a format of `int8Product`. */
export function int8Weight(
  context: GraphContext,
  names: ProductNames,
  layers: readonly LinearLayer[],
  format: WeightFormat,
): Int8Weight {
  const { storedName, weight, scales } = storedMatrix(context, names, layers, format);
  invariant(scales !== null, "int8 weights have scales");
  return {
    weight: context.graph.externalTensor(`${storedName}.weight`, weight),
    scales: context.graph.externalTensor(`${storedName}.scales`, scales),
  };
}

function storedMatrix(
  { weights, precision }: GraphContext,
  { weightName, rowOrder }: ProductNames,
  layers: readonly LinearLayer[],
  format: WeightFormat,
): PreparedTensors & { readonly storedName: string } {
  // Another form of the same weights, for prompts.
  const storedName = isForPrompts(precision, format) ? `${weightName}.prompts` : weightName;
  const { inFeatures, storedShape } = layers[0]!;
  const prepared = weights.prepared({
    name: `${storedName}.weight`,
    sources: layers.map((layer) => `${layer.name}.weight`),
    shape: storedShape ?? [numOutputs(layers), inFeatures],
    format,
    ...(rowOrder !== undefined && { rowOrder }),
  });
  return { storedName, ...prepared };
}

function numOutputs(layers: readonly LinearLayer[]): number {
  return layers.reduce((sum, layer) => sum + layer.outFeatures, 0);
}

/** The input's features in the order of a weight whose inputs were sorted by group (act-order). */
function inOrder(context: GraphContext, name: string, input: Value, inputOrder: Int32Array): Value {
  const { graph, device, orderedInputs } = context;
  const known = orderedInputs.get(input) ?? [];
  const same = known.find(({ order }) => sameOrder(order, inputOrder));
  if (same !== undefined) return same.value;
  const isCpu = device === "cpu";
  const indices = graph.constant(`${name}.inputs`, isCpu ? "int64" : "int32", [inputOrder.length], [...inputOrder]);
  const value = (isCpu ? extractColumns : gatherColumns)(graph, name, input, indices);
  orderedInputs.set(input, [...known, { order: inputOrder, value }]);
  return value;
}

// The CUDA provider's fused kernels multiply float16 activations by integer weights in symmetric blocks of 32, and
// compute outputs in tiles whose size depends on the bits of a weight (fpA_intB, in the compact build of 1.30).
const FUSED_BLOCK_SIZE = 32;
const fusedOutputTile = { 4: 64, 8: 32 } as const;

/** @throws EngineError `invalid_configuration` for a layer that they do not take. */
function checkFusedLayout(
  name: string,
  { bits, blockSize }: Extract<WeightFormat, { kind: "blockwise" }>,
  inFeatures: number,
  outFeatures: number,
): void {
  const tile = fusedOutputTile[bits];
  if (blockSize === FUSED_BLOCK_SIZE && inFeatures % FUSED_BLOCK_SIZE === 0 && outFeatures % tile === 0) return;
  throw new EngineError(
    "invalid_configuration",
    `On cuda, weights of ${bits} bits have multiples of ${FUSED_BLOCK_SIZE} inputs and of ${tile} outputs; ${name} has ` +
      `${inFeatures} inputs and ${outFeatures} outputs. Set dtype to bfloat16 or float16.`,
    { setting: "dtype" },
  );
}

/** @param shape Of the value: [outFeatures], perhaps behind sizes of 1. */
function packedBias(
  context: GraphContext,
  name: string,
  layers: readonly LinearLayer[],
  shape: readonly number[],
): Value {
  const { graph, weights, precision } = context;
  invariant(
    layers.every((layer) => layer.hasBias),
    `either all or none of the layers of ${name} have biases`,
  );
  const biasName = layers.length === 1 ? `${layers[0]!.name}.bias` : `${name}.bias`;
  const { weight } = weights.prepared({
    name: biasName,
    sources: layers.map((layer) => `${layer.name}.bias`),
    shape: shape.slice(-1),
    format: { kind: "plain", elementType: precision.activations },
  });
  return graph.externalTensor(biasName, weight, shape);
}
