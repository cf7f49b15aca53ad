/** The two ends of a decoder: token ids to embeddings, hidden states to logits. */
import type { GraphBuilder } from "../../graph/graph-builder.ts";
import { lessOrEqual, maximum, minimum, where } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { cast, divide, gatherRows, gemm, multiply, subtract, tanh } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { logitRows, parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import type { Projection } from "../retrieval/retriever.ts";
import type { WeightSource } from "../weight-source.ts";
import { outputCandidates } from "./candidates.ts";
import type { DecoderInputs, TokensWithImages } from "./decoder-inputs.ts";
import { tokens } from "./sizes.ts";

/** Decoders' names for the sizes of the vocabulary and its embeddings. */
export interface VocabularySize {
  readonly vocabSize: number;
  readonly hiddenSize: number;
}

/**
 * [N, hiddenSize]: embeddings of the tokens, and of the images among them.
 *
 * @param options.numLevels Number of further features of an image embedding. Default 0.
 * @param options.factor Of the tokens' embeddings, not of the images'. Default 1.
 */
export function embedTokens(
  context: GraphContext,
  inputs: DecoderInputs,
  {
    tableName,
    size,
    acceptsImages,
    numLevels = 0,
    factor = 1,
    addedTokens,
  }: {
    readonly tableName: string;
    readonly size: VocabularySize;
    readonly acceptsImages: boolean;
    readonly numLevels?: number;
    readonly factor?: number;
    readonly addedTokens?: AddedTokens;
  },
): TokensWithImages {
  const table = {
    name: "embedding_table",
    tableName,
    shape: [size.vocabSize, size.hiddenSize],
    factor,
  } as const;
  const embedded =
    addedTokens === undefined
      ? embeddingRows(context, "embedded", inputs.tokenIds, table)
      : withAddedTokens(context, inputs.tokenIds, { size, addedTokens }, (tokenIds) =>
          embeddingRows(context, "embedded.known", tokenIds, table),
        );
  return acceptsImages ? inputs.withImages(embedded, numLevels) : { embedded, levels: [] };
}

interface BoundedSize extends VocabularySize {
  /** Logits become `softcap * tanh(logits / softcap)`; null or left out: they stay as they are. */
  readonly softcap?: number | null;
}

/** Tokens behind the vocabulary: prompts may have them, answers may not. */
export interface AddedTokens {
  /** Tensor of their embeddings, without a factor. */
  readonly tableName: string;
  readonly numTokens: number;
}

/** [N, hiddenSize], of both tables. */
function withAddedTokens(
  context: GraphContext,
  tokenIds: Value,
  { size, addedTokens }: { readonly size: VocabularySize; readonly addedTokens: AddedTokens },
  knownRows: (tokenIds: Value) => Value,
): Value {
  const { graph } = context;
  const { vocabSize, hiddenSize } = size;
  const last = int64Scalar(graph, vocabSize - 1);
  const known = knownRows(minimum(graph, "tokens.known", tokenIds, last));
  const beyond = subtract(graph, "tokens.beyond", tokenIds, int64Scalar(graph, vocabSize));
  const rows = maximum(graph, "tokens.added", beyond, int64Scalar(graph, 0));
  const table = parameter(context, addedTokens.tableName, [addedTokens.numTokens, hiddenSize]);
  const isKnown = lessOrEqual(graph, "tokens.are_known", tokenIds, last);
  return where(graph, "embedded", {
    condition: reshapeTo(graph, "tokens.are_known.column", isKnown, [tokens, 1]),
    chosen: known,
    other: gatherRows(graph, "embedded.added", table, rows),
  });
}

/** Names under which graphs have their tables: of the tokens, and of those that each layer has of its own. */
export const embeddingTables = ["embedding_table", "layer_embedding_table"] as const;

/** [N, width]: the tokens' rows of a table [vocabSize, width], multiplied by `factor`. */
export function embeddingRows(
  { graph, weights, precision }: GraphContext,
  name: string,
  tokenIds: Value,
  table: {
    readonly name: (typeof embeddingTables)[number];
    /** Tensor of the checkpoint. */
    readonly tableName: string;
    readonly shape: readonly [vocabSize: number, width: number];
    readonly factor: number;
  },
): Value {
  const { tableName, shape, factor } = table;
  // Stored as in the checkpoint, even if the rest is quantised: a token reads one row, so a smaller type gains nothing,
  // and mapped memory is committed only for the rows that are read.
  const format = { kind: "plain", elementType: precision.activations } as const;
  const tensor =
    weights.stored(tableName, shape) ??
    weights.prepared({ name: table.name, sources: [tableName], shape, format }).weight;
  const gathered = gatherRows(graph, name, graph.externalTensor(table.name, tensor), tokenIds);
  const converted = cast(graph, `${name}.cast`, gathered, precision.activations);
  if (factor === 1) return converted;
  const scale = graph.constant(`${name}.factor`, precision.activations, [1], [factor]);
  return multiply(graph, `${name}.scaled`, converted, scale);
}

/** Names of the tensors that a head may share with the embeddings, without `.weight`. */
export interface HeadNames {
  readonly isTied: boolean;
  readonly tableName: string;
  readonly headName: string;
}

/**
 * The tensor of the head. As in transformers, a head in the checkpoint counts even if config.json says that the
 * embeddings replace it: a fine-tuned head is then kept, and an equal copy changes nothing.
 */
export function headTensor(weights: WeightSource, { isTied, tableName, headName }: HeadNames): string {
  return isTied && !weights.has(`${headName}.weight`) ? tableName : headName;
}

/**
 * Computes `logits` float32 [R, vocabSize] from the rows' hidden states, and in a paged graph the rows' candidates. Other
 * outputs of a decoder have its name, too.
 */
export function outputLogits(context: GraphContext, input: Value, name: string, size: BoundedSize): void {
  const { graph, precision, output } = context;
  const { hiddenSize: inFeatures, vocabSize: outFeatures, softcap = null } = size;
  if (output.kind !== "logits") {
    const states = cast(graph, "states", input, "float32");
    if (output.kind === "states") {
      outputRows(context, reshapeTo(graph, "logits", states, [logitRows, inFeatures]), inFeatures);
    } else if (output.kind === "tokens") outputProjection(context, states, output.projection);
    else outputClasses(context, states, output.tokenIds, { ...size, headName: name });
    return;
  }
  const layer = { name, inFeatures, outFeatures, hasBias: false };
  const outputName = softcap === null ? "logits" : "logits.unbounded";
  const projected =
    precision.activations === "float32"
      ? linear(context, input, layer, precision.head, outputName)
      : cast(graph, outputName, linear(context, input, layer, precision.head), "float32");
  const logits = softcap === null ? projected : bounded(graph, projected, softcap);
  outputRows(context, logits, outFeatures);
}

/** `logits` float32 [R, projection.size]. */
function outputProjection(context: GraphContext, states: Value, { name, size, hasBias }: Projection): void {
  const hiddenSize = states.shape[1] as number;
  const weight = parameter(context, `${name}.weight`, [size, hiddenSize], "float32");
  const bias = hasBias ? parameter(context, `${name}.bias`, [size], "float32") : null;
  outputRows(context, gemm(context.graph, "logits", states, weight, bias), size);
}

/** `logits` float32 [R, number of classes], of a few rows of the head or of the checkpoint's layer `score`. */
function outputClasses(
  context: GraphContext,
  states: Value,
  tokenIds: readonly number[] | null,
  { headName, hiddenSize, softcap }: BoundedSize & { readonly headName: string },
): void {
  const { graph, weights } = context;
  const numClasses = tokenIds?.length ?? 1;
  const { weight } = weights.prepared({
    name: "classes.weight",
    sources: [tokenIds === null ? "score.weight" : `${headName}.weight`],
    shape: [numClasses, hiddenSize],
    format: { kind: "plain", elementType: "float32" },
    ...(tokenIds !== null && { rows: tokenIds }),
  });
  const cap = tokenIds === null ? null : (softcap ?? null);
  const outputName = cap === null ? "logits" : "logits.unbounded";
  const projected = gemm(graph, outputName, states, graph.externalTensor("classes.weight", weight), null);
  outputRows(context, cap === null ? projected : bounded(graph, projected, cap), numClasses);
}

/** Packed runs have candidates for rows of either kind, so that they are bound and kept in one way. */
function outputRows(context: GraphContext, rows: Value, width: number): void {
  context.graph.output(rows, [logitRows, width]);
  if (context.kvLayout.kind === "paged") outputCandidates(context, rows, width);
}

function bounded(graph: GraphBuilder, logits: Value, softcap: number): Value {
  const cap = graph.constant("logits.cap", "float32", [1], [softcap]);
  const bent = tanh(graph, "logits.bent", divide(graph, "logits.relative", logits, cap));
  return multiply(graph, "logits", bent, cap);
}
