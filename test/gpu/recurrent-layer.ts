/**
 * The operators of one recurrent layer as the decoder graphs have them, run on random batches: on CUDA those for packed
 * runs, on the CPU the reference of the same inputs. Beside it the same sums in plain loops.
 */
import type { GraphBuilder } from "../../engine/graph/graph-builder.ts";
import { StateCache } from "../../engine/kv/state-cache.ts";
import type { RecurrentShape } from "../../engine/models/built-model.ts";
import { createDecoderInputs } from "../../engine/models/decoder-graph/create-decoder-inputs.ts";
import { tokens } from "../../engine/models/decoder-graph/sizes.ts";
import { createGraphContext } from "../../engine/models/graph-context.ts";
import { imaginedWeights } from "../../engine/models/weight-source.ts";
import type { Session } from "../../engine/runtime/session.ts";
import { Tensor } from "../../engine/runtime/tensor.ts";
import type { ExperimentDevice } from "./experiment.ts";
import { decode, emptyArray, encode, randomNumbers, rounded } from "./numbers.ts";
import type { FloatType } from "./numbers.ts";

export interface LayerShape {
  /** Of the convolution; the delta rule is computed in float32. */
  readonly elementType: FloatType;
  readonly numKeyHeads: number;
  readonly numValueHeads: number;
  readonly keyDim: number;
  readonly valueDim: number;
  readonly kernelSize: number;
}

/** Of each row: the inputs of the convolution [rows, kernelSize - 1, channels], and [rows, heads, keyDim, valueDim]. */
export interface LayerStates {
  readonly convolution: Float32Array;
  readonly state: Float32Array;
}

/** Sequence `i` reads row `2 * i` and writes row `2 * i + 1`. */
export interface LayerBatch {
  /** New tokens of each sequence, at least one. */
  readonly lengths: readonly number[];
  readonly states: LayerStates;
  readonly kernel: Float32Array;
  /** By name: [numTokens, ...]. */
  readonly inputs: Readonly<Record<"input" | "query" | "key" | "value" | "decay" | "beta", Float32Array>>;
}

export interface LayerResult {
  /** [numTokens, channels] */
  readonly convolved: Float32Array;
  /** [numTokens, numValueHeads * valueDim] */
  readonly recurred: Float32Array;
  readonly states: LayerStates;
}

function numChannels({ numKeyHeads, numValueHeads, keyDim, valueDim }: LayerShape): number {
  return 2 * numKeyHeads * keyDim + numValueHeads * valueDim;
}

export function buildLayer(device: ExperimentDevice, shape: LayerShape): GraphBuilder {
  const { elementType, numKeyHeads, numValueHeads, keyDim, valueDim, kernelSize } = shape;
  const plain = { kind: "plain", elementType } as const;
  const context = createGraphContext("recurrent_layer", {
    weights: imaginedWeights,
    precision: { activations: elementType, linear: plain, head: plain, vision: plain },
    device,
    // Nothing reads the cache; a block has more tokens than any sequence.
    kvLayout: { kind: "paged", blockSize: 1024 },
  });
  const { graph } = context;
  const { convolve, recur } = createDecoderInputs(context);
  const channels = numChannels(shape);
  const float = (name: string, width: number) => graph.input(name, "float32", [tokens, width]);
  const convolved = convolve({
    name: "convolved",
    layer: 0,
    input: graph.input("input", elementType, [tokens, channels]),
    kernel: graph.input("kernel", elementType, [channels, 1, kernelSize]),
    bias: null,
    activation: "silu",
  });
  const recurred = recur({
    name: "recurred",
    layer: 0,
    query: float("query", numKeyHeads * keyDim),
    key: float("key", numKeyHeads * keyDim),
    value: float("value", numValueHeads * valueDim),
    decay: float("decay", numValueHeads),
    beta: float("beta", numValueHeads),
    numKeyHeads,
    numValueHeads,
    keyDim,
    valueDim,
  });
  graph.output(convolved);
  graph.output(recurred);
  return graph;
}

export function randomLayerBatch(shape: LayerShape, lengths: readonly number[], seed: number): LayerBatch {
  const { elementType, numKeyHeads, numValueHeads, keyDim, valueDim, kernelSize } = shape;
  const channels = numChannels(shape);
  const numTokens = lengths.reduce((sum, length) => sum + length, 0);
  const numRows = 2 * lengths.length;
  const half = (count: number, offset: number) => rounded(elementType, randomNumbers(count, seed + offset));
  const keyWidth = numTokens * numKeyHeads * keyDim;
  return {
    lengths,
    states: {
      convolution: half(numRows * (kernelSize - 1) * channels, 1),
      state: randomNumbers(numRows * numValueHeads * keyDim * valueDim, seed + 2),
    },
    kernel: half(channels * kernelSize, 3),
    inputs: {
      input: half(numTokens * channels, 4),
      // Shorter than 1, so that states stay bounded.
      query: randomNumbers(keyWidth, seed + 5, keyDim ** -0.5),
      key: randomNumbers(keyWidth, seed + 6, keyDim ** -0.5),
      value: randomNumbers(numTokens * numValueHeads * valueDim, seed + 7),
      decay: randomNumbers(numTokens * numValueHeads, seed + 8).map((number) => -Math.abs(number)),
      beta: randomNumbers(numTokens * numValueHeads, seed + 9).map(Math.abs),
    },
  };
}

/** @param use Runs the bound layer again, which reads and writes the same rows. */
export function runLayer(
  session: Session,
  shape: LayerShape,
  batch: LayerBatch,
  use: (run: () => void) => void = () => {},
): LayerResult {
  const { elementType, numKeyHeads, numValueHeads, keyDim, valueDim, kernelSize } = shape;
  const { lengths, inputs, states } = batch;
  const channels = numChannels(shape);
  const numTokens = lengths.reduce((sum, length) => sum + length, 0);
  const numRows = 2 * lengths.length;
  const isTransposed = session.device === "cuda";
  const recurrent: RecurrentShape = {
    numLayers: 1,
    numChannels: channels,
    kernelSize,
    matrices: { numHeads: numValueHeads, keyDim, valueDim },
    inputType: elementType,
    isTransposed,
  };
  using owned = new DisposableStack();
  using binding = session.createBinding();
  const { tensors } = owned.use(owned.use(new StateCache(session, recurrent, numRows)).view(0, numRows));
  const exchanged = (values: Float32Array, rows: number, columns: number): Float32Array =>
    isTransposed ? transposed(values, rows, columns) : values;
  const convolution = tensors.get("0.convolution")!;
  const state = tensors.get("0.state")!;
  convolution.copyFrom(encode(elementType, exchanged(states.convolution, kernelSize - 1, channels)));
  state.copyFrom(exchanged(states.state, keyDim, valueDim));
  const tensor = (type: FloatType, values: Float32Array, dimensions: readonly number[]): Tensor =>
    owned.use(Tensor.fromTypedArray(type, encode(type, values), dimensions));
  const rows = (first: number): Tensor =>
    owned.use(
      Tensor.fromTypedArray(
        "int64",
        BigInt64Array.from(lengths, (_, index) => BigInt(2 * index + first)),
        [lengths.length],
      ),
    );
  const int32 = (values: Int32Array, dimensions: readonly number[]): Tensor =>
    owned.use(Tensor.fromTypedArray("int32", values, dimensions));
  let end = 0;
  const starts = Int32Array.from([0, ...lengths], (length) => (end += length));
  const widths = { query: numKeyHeads * keyDim, key: numKeyHeads * keyDim, value: numValueHeads * valueDim };
  const given: Readonly<Record<string, Tensor>> = {
    input_ids: owned.use(Tensor.fromTypedArray("int64", new BigInt64Array(numTokens), [numTokens])),
    logit_rows: owned.use(Tensor.fromTypedArray("int64", new BigInt64Array(1), [1])),
    cumulative_lengths: int32(starts, [starts.length]),
    past_lengths: int32(new Int32Array(lengths.length), [lengths.length]),
    block_table: int32(new Int32Array(lengths.length), [lengths.length, 1]),
    attention_metadata: int32(new Int32Array(3), [3]),
    state_rows: rows(0),
    new_state_rows: rows(1),
    kernel: tensor(elementType, batch.kernel, [channels, 1, kernelSize]),
    input: tensor(elementType, inputs.input, [numTokens, channels]),
    query: tensor("float32", inputs.query, [numTokens, widths.query]),
    key: tensor("float32", inputs.key, [numTokens, widths.key]),
    value: tensor("float32", inputs.value, [numTokens, widths.value]),
    decay: tensor("float32", inputs.decay, [numTokens, numValueHeads]),
    beta: tensor("float32", inputs.beta, [numTokens, numValueHeads]),
    "past.0.convolution": convolution,
    "past.0.state": state,
  };
  // ONNX Runtime drops inputs that no node reads.
  for (const name of session.inputNames) binding.bindInput(name, given[name]!);
  binding.bindOutput("present.0.convolution", convolution);
  binding.bindOutput("present.0.state", state);
  const [convolvedName, recurredName] = session.outputNames.filter((name) => !name.startsWith("present"));
  const convolved = emptyArray(elementType, numTokens * channels);
  const recurred = new Float32Array(numTokens * widths.value);
  binding.bindOutput(convolvedName!, owned.use(Tensor.fromTypedArray(elementType, convolved, [numTokens, channels])));
  binding.bindOutput(recurredName!, owned.use(Tensor.fromTypedArray("float32", recurred, [numTokens, widths.value])));
  binding.run();
  use(() => binding.run());
  const read = (from: Tensor, type: FloatType): Float32Array =>
    decode(type, from.copyToHost() as Parameters<typeof decode>[1]);
  return {
    convolved: decode(elementType, convolved),
    recurred,
    states: {
      convolution: exchanged(read(convolution, elementType), channels, kernelSize - 1),
      state: exchanged(read(state, "float32"), valueDim, keyDim),
    },
  };
}

/** [..., rows, columns] as [..., columns, rows]. */
function transposed(values: Float32Array, rows: number, columns: number): Float32Array {
  const size = rows * columns;
  const target = new Float32Array(values.length);
  for (let index = 0; index < values.length; index++) {
    const within = index % size;
    target[index - within + (within % columns) * rows + Math.floor(within / columns)] = values[index]!;
  }
  return target;
}

/** The same sums in 64-bit numbers, one after the other. */
export function recurInLoops(shape: LayerShape, { lengths, states, kernel, inputs }: LayerBatch): LayerResult {
  const { numKeyHeads, numValueHeads, keyDim, valueDim, kernelSize } = shape;
  const channels = numChannels(shape);
  const numKept = kernelSize - 1;
  const convolution = states.convolution.slice();
  const state = states.state.slice();
  const convolved = new Float32Array(inputs.input.length);
  const recurred = new Float32Array(inputs.value.length);
  let first = 0;
  lengths.forEach((length, sequence) => {
    const keptAt = (row: number): number => row * numKept * channels;
    /** Of the channel, at a place after the sequence's earlier tokens, which have negative ones. */
    const inputAt = (place: number, channel: number): number =>
      place < 0
        ? states.convolution[keptAt(2 * sequence) + (numKept + place) * channels + channel]!
        : inputs.input[(first + place) * channels + channel]!;
    for (let channel = 0; channel < channels; channel++) {
      for (let token = 0; token < length; token++) {
        let sum = 0;
        for (let tap = 0; tap < kernelSize; tap++) {
          sum += kernel[channel * kernelSize + tap]! * inputAt(token - numKept + tap, channel);
        }
        convolved[(first + token) * channels + channel] = sum / (1 + Math.exp(-sum));
      }
      for (let kept = 0; kept < numKept; kept++) {
        convolution[keptAt(2 * sequence + 1) + kept * channels + channel] = inputAt(length - numKept + kept, channel);
      }
    }
    for (let head = 0; head < numValueHeads; head++) {
      const keyHead = Math.floor(head / (numValueHeads / numKeyHeads));
      const matrixAt = (row: number): number => (row * numValueHeads + head) * keyDim * valueDim;
      const matrix = Float64Array.from(states.state.subarray(matrixAt(2 * sequence)).subarray(0, keyDim * valueDim));
      for (let token = first; token < first + length; token++) {
        const keyAt = (token * numKeyHeads + keyHead) * keyDim;
        const kept = Math.exp(inputs.decay[token * numValueHeads + head]!);
        for (let column = 0; column < valueDim; column++) {
          const at = (token * numValueHeads + head) * valueDim + column;
          let retrieved = 0;
          for (let row = 0; row < keyDim; row++) {
            retrieved += kept * matrix[row * valueDim + column]! * inputs.key[keyAt + row]!;
          }
          const delta = inputs.beta[token * numValueHeads + head]! * (inputs.value[at]! - retrieved);
          let output = 0;
          for (let row = 0; row < keyDim; row++) {
            const moved = kept * matrix[row * valueDim + column]! + inputs.key[keyAt + row]! * delta;
            matrix[row * valueDim + column] = moved;
            output += moved * inputs.query[keyAt + row]!;
          }
          recurred[at] = output;
        }
      }
      state.set(matrix, matrixAt(2 * sequence + 1));
    }
    first += length;
  });
  return { convolved, recurred, states: { convolution, state } };
}
