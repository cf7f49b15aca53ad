/** The context in which the parts of a model's graph are built: builder, weights and precision. */
import type { DeviceName } from "../contract/config.ts";
import { GraphBuilder } from "../graph/graph-builder.ts";
import { cast } from "../graph/standard-ops.ts";
import type { Dimension, Value } from "../graph/value.ts";
import type { WeightFormat } from "../weights/prepared-weights.ts";
import type { KvElementType, KvLayout } from "./built-model.ts";
import { logitsOutput, type DecoderOutput } from "./decoder-output.ts";
import type { WeightSource } from "./weight-source.ts";

/** A format of floats. */
export type PlainFormat = Extract<WeightFormat, { kind: "plain" }>;

export interface Precision {
  /** Type of activations, norms, biases and the KV cache. */
  readonly activations: "float32" | "float16" | "bfloat16";
  /** Format of the decoder's linear layers. */
  readonly linear: WeightFormat;
  /** Format of the projection onto the vocabulary. */
  readonly head: WeightFormat;
  /** Format of experts that ONNX Runtime's operator computes. Default: products of `linear` compute them. */
  readonly experts?: PlainFormat;
  /** Format of the vision tower's and the projector's linear layers. */
  readonly vision: WeightFormat;
  /** Whether layers whose integers the checkpoint stores are computed with these integers. Default false. */
  readonly keepsIntegers?: true;
  /** Format of layers that would be computed with stored blocks of integers. Default: the blocks. */
  readonly blocks?: WeightFormat;
  /**
   * Formats of the decoder in chunks of prompts and in large batches of newest tokens, instead of those above. They are
   * other objects than all other formats. Default: these runs are computed like any run.
   */
  readonly prompts?: { readonly linear?: WeightFormat; readonly blocks?: WeightFormat };
}

/**
 * How keys and values are stored: in the activations' type; as int8 with a step for each channel; or as 8-bit floats
 * (E4M3), which the CPU's reference rounds to and keeps in the activations' type. `steps` has those of the first layer's
 * keys [numKvHeads * headDim], then its values, then the next layer's; null before they are measured.
 */
export type KvPrecision =
  | { readonly kind: "activations" }
  | { readonly kind: "int8"; readonly steps: readonly Float32Array[] | null }
  | { readonly kind: "fp8" };

/** Number of rows whose logits are computed, in graphs with logits. */
export const logitRows = "R";

/** The adapters of a run's tokens. */
export interface AdapterTokens {
  /** int64 [tokens] by the number of tokens: the adapter of each, from 1 on; 0: none. */
  readonly ids: Map<Dimension, Value>;
  /** int64 [A]: the columns of one layer that any token needs; null to compute all. */
  columns: Value | null;
  /** What is the same for all layers with as many tokens and columns. */
  readonly shared: Map<string, Value>;
}

export type RunKind = "any" | "newest";

export interface GraphContext {
  readonly graph: GraphBuilder;
  readonly weights: WeightSource;
  readonly precision: Precision;
  /** Precision of a vision graph's projector; see `projectorContext`. */
  readonly projectorPrecision: Precision;
  /** Device that runs the graph. Kernels of the same operator are fast at different things. */
  readonly device: DeviceName;
  /** How the decoder's KV cache lies in memory; nothing else depends on it. */
  readonly kvLayout: KvLayout;
  readonly kvPrecision: KvPrecision;
  /**
   * Which runs the graph computes: any, or only the newest token of each sequence. A graph for any run may have branches
   * for chunks of prompts and newest tokens.
   */
  readonly runKind: RunKind;
  /** What the decoder's `logits` are. Without logits, there is no head. */
  readonly output: DecoderOutput;
  /** Filled by `linear.ts`: zero points of quantised activations, shared by all layers over the same tokens. */
  readonly zeroPointsByTokens: Map<Dimension, Value>;
  /** Filled by `linear.ts`: inputs of layers in the orders of their groups (act-order), shared by layers of equal order. */
  readonly orderedInputs: Map<Value, readonly { readonly order: Int32Array; readonly value: Value }[]>;
  /** Null in a graph whose layers no request's adapter changes; filled by `low-rank.ts` and the decoder's inputs. */
  readonly adapterTokens: AdapterTokens | null;
  /** Sizes that may be 0 at run time. */
  readonly emptySizes: ReadonlySet<Dimension>;
}

export function createGraphContext(
  name: string,
  from: Pick<GraphContext, "weights" | "precision" | "device" | "kvLayout"> &
    Partial<Pick<GraphContext, "projectorPrecision" | "kvPrecision" | "adapterTokens" | "output">>,
): GraphContext {
  return {
    graph: new GraphBuilder(name),
    runKind: "any",
    output: logitsOutput,
    projectorPrecision: from.precision,
    kvPrecision: { kind: "activations" },
    adapterTokens: null,
    ...from,
    zeroPointsByTokens: new Map(),
    orderedInputs: new Map(),
    emptySizes: new Set([logitRows]),
  };
}

/** The type of the tensors that hold keys and values. */
export function kvElementTypeOf({
  precision,
  kvPrecision,
  device,
}: Pick<GraphContext, "precision" | "kvPrecision" | "device">): KvElementType {
  if (kvPrecision.kind === "int8") return "int8";
  return kvPrecision.kind === "fp8" && device === "cuda" ? "float8e4m3" : precision.activations;
}

/** The context of a branch of the graph, which keeps its values to itself. */
export function branchContext(
  context: GraphContext,
  changes: Partial<Pick<GraphContext, "runKind" | "precision">> = {},
): GraphContext {
  const { adapterTokens } = context;
  return {
    ...context,
    ...changes,
    zeroPointsByTokens: new Map(),
    orderedInputs: new Map(),
    adapterTokens: adapterTokens && {
      ...adapterTokens,
      ids: new Map(adapterTokens.ids),
      shared: new Map(adapterTokens.shared),
    },
  };
}

/** The context in which a projector is built, and its input in the projector's type. */
export function projectorContext(
  context: GraphContext,
  input: Value,
): { readonly context: GraphContext; readonly input: Value } {
  const { graph, projectorPrecision: precision } = context;
  return { context: { ...context, precision }, input: cast(graph, "projector.input", input, precision.activations) };
}

/**
 * A parameter: norms, biases, embeddings of positions.
 *
 * @param elementType Default: the activations'.
 */
export function parameter(
  { graph, weights, precision }: GraphContext,
  name: string,
  shape: readonly number[],
  elementType = precision.activations,
): Value {
  const format = { kind: "plain", elementType } as const;
  const { weight } = weights.prepared({ name, sources: [name], shape, format });
  return graph.externalTensor(name, weight);
}
