/** The sessions of an exported decoder: embeds tokens, inserts image embeddings, and binds every input by name. */
import type { DecoderExport } from "../models/built-model.ts";
import type { IoBinding } from "../runtime/io-binding.ts";
import { Session } from "../runtime/session.ts";
import type { SessionOptions } from "../runtime/session.ts";
import { Tensor } from "../runtime/tensor.ts";
import type { SpanEmbeddings } from "./decoder.ts";

type Numbers = Float32Array | Float16Array;

/**
 * Tokens of `numSequences` sequences of equal length. Each has the same number of computed tokens, or padding, before
 * them.
 */
export interface ExportedRun {
  readonly numSequences: number;
  /** Row-major [numSequences, numTokens]. */
  readonly tokenIds: BigInt64Array;
  /** Embeddings that replace tokens, by index into `tokenIds`. */
  readonly embeddings: SpanEmbeddings;
  /** Row-major [axes, numSequences, numTokens]; the graph decides the number of axes. */
  readonly positionIds: BigInt64Array;
  /** Row-major [numSequences, numPast + numTokens]: 0 for padding, otherwise 1. */
  readonly mask: BigInt64Array;
  /**
   * A key and a value per layer, [numSequences, numKvHeads, numPast, headDim], then the states. Disposed of after the
   * run.
   */
  readonly past: readonly Tensor[];
  /** The same after the run, in other memory. */
  readonly present: readonly Tensor[];
  /** Row-major [numSequences * rows, vocabSize]: receives the predictions of each sequence's last tokens. */
  readonly logits: Float32Array;
}

/** Mutable; owns the sessions. */
export class ExportedSession implements Disposable {
  readonly #graph: DecoderExport;
  readonly #session: Session;
  readonly #binding: IoBinding;
  /** In the order of `ExportedRun.past`. */
  readonly #pastNames: readonly { readonly input: string; readonly output: string }[];
  readonly #embedding: { readonly session: Session; readonly binding: IoBinding } | null;
  /** Receives logits that the graph computes but the caller did not request. */
  #scratch: Numbers = new Float32Array(0);

  /** Throws EngineError `runtime_failed` if a graph does not load. */
  constructor(graph: DecoderExport, options: SessionOptions) {
    this.#graph = graph;
    this.#pastNames = [...graph.kvLayers.flatMap(keyAndValueNames), ...graph.states];
    using loaded = new DisposableStack();
    this.#session = loaded.use(Session.load(graph.path, options));
    this.#binding = this.#session.createBinding();
    if (graph.embedTokens === null) {
      this.#embedding = null;
    } else {
      const session = loaded.use(Session.load(graph.embedTokens.path, options));
      this.#embedding = { session, binding: session.createBinding() };
    }
    loaded.move();
  }

  /** Throws EngineError `runtime_failed`; logits and present are then undefined. */
  run({ numSequences, tokenIds, embeddings, positionIds, mask, past, present, logits }: ExportedRun): void {
    const { vocabSize, takesAttentionMask, takesTokenTypes } = this.#graph;
    const { numPositionAxes, numLogitsToKeepRank, hasCacheBranch } = this.#graph;
    const numTokens = tokenIds.length / numSequences;
    const numTotal = mask.length / numSequences;
    const numWanted = logits.length / vocabSize / numSequences;
    // 0 would mean all of them.
    const numRows = numLogitsToKeepRank === null ? numTokens : Math.max(numWanted, 1);
    using tensors = new DisposableStack();
    const bind = (name: string, tensor: Tensor): void => this.#binding.bindInput(name, tensors.use(tensor));
    past.forEach((tensor, index) => bind(this.#pastNames[index]!.input, tensor));
    present.forEach((tensor, index) => {
      this.#binding.bindOutput(this.#pastNames[index]!.output, tensors.use(tensor));
    });
    this.#bindTokens(tokenIds, [numSequences, numTokens], embeddings, bind);
    if (takesAttentionMask) bind("attention_mask", Tensor.fromTypedArray("int64", mask, [numSequences, numTotal]));
    if (numPositionAxes > 0) {
      const shape = [...(numPositionAxes === 3 ? [3] : []), numSequences, numTokens];
      bind("position_ids", Tensor.fromTypedArray("int64", positionIds, shape));
    }
    if (takesTokenTypes) {
      const types = new BigInt64Array(tokenIds.length);
      for (const position of embeddings.positions) types[Number(position)] = 1n;
      bind("token_type_ids", Tensor.fromTypedArray("int64", types, [numSequences, numTokens]));
    }
    if (numLogitsToKeepRank !== null) {
      const shape = numLogitsToKeepRank === 0 ? [] : [1];
      bind("num_logits_to_keep", Tensor.fromTypedArray("int64", BigInt64Array.of(BigInt(numRows)), shape));
    }
    if (hasCacheBranch) {
      bind("use_cache_branch", Tensor.fromTypedArray("bool", Uint8Array.of(numTotal > numTokens ? 1 : 0), [1]));
    }
    const computed = this.#logitsTarget(logits, numSequences * numRows);
    const shape = [numSequences, numRows, vocabSize];
    this.#binding.bindOutput(
      "logits",
      tensors.use(Tensor.fromTypedArray(this.#graph.logitsElementType, computed, shape)),
    );
    this.#binding.run();
    // With several sequences each has one token, and all logits are wanted.
    if (computed !== logits) logits.set(computed.subarray(computed.length - logits.length));
  }

  [Symbol.dispose](): void {
    this.#session[Symbol.dispose]();
    this.#embedding?.session[Symbol.dispose]();
  }

  /** Binds embeddings with the images in their places if the decoder takes embeddings, otherwise token ids. */
  #bindTokens(
    tokenIds: BigInt64Array,
    idsShape: readonly [number, number],
    { embeddings, positions }: SpanEmbeddings,
    bind: (name: string, tensor: Tensor) => void,
  ): void {
    const ids = Tensor.fromTypedArray("int64", tokenIds, idsShape);
    const { embedTokens, embedsElementType, hiddenSize } = this.#graph;
    if (this.#embedding === null || embedTokens === null) return bind("input_ids", ids);
    const { binding } = this.#embedding;
    const shape = [...idsShape, hiddenSize];
    const embedded = createNumbers(embedTokens.elementType, tokenIds.length * hiddenSize);
    {
      using input = ids;
      using output = Tensor.fromTypedArray(embedTokens.elementType, embedded, shape);
      binding.bindInput("input_ids", input);
      binding.bindOutput("inputs_embeds", output);
      binding.run();
    }
    positions.forEach((position, row) => {
      embedded.set(embeddings.subarray(row * hiddenSize, (row + 1) * hiddenSize), Number(position) * hiddenSize);
    });
    const given =
      embedTokens.elementType === embedsElementType ? embedded : convertNumbers(embedded, embedsElementType);
    bind("inputs_embeds", Tensor.fromTypedArray(embedsElementType, given, shape));
  }

  /** Returns the wanted rows themselves if the graph computes only these, otherwise scratch memory for all rows. */
  #logitsTarget(logits: Float32Array, numRows: number): Numbers {
    const { vocabSize, logitsElementType } = this.#graph;
    const length = numRows * vocabSize;
    if (logitsElementType === "float32" && logits.length === length) return logits;
    if (this.#scratch.length < length) this.#scratch = createNumbers(logitsElementType, length);
    return this.#scratch.subarray(0, length);
  }
}

function keyAndValueNames(layer: number): { readonly input: string; readonly output: string }[] {
  return ["key", "value"].map((part) => ({
    input: `past_key_values.${layer}.${part}`,
    output: `present.${layer}.${part}`,
  }));
}

function createNumbers(elementType: "float32" | "float16", length: number): Numbers {
  return elementType === "float32" ? new Float32Array(length) : new Float16Array(length);
}

function convertNumbers(values: Numbers, elementType: "float32" | "float16"): Numbers {
  return elementType === "float32" ? Float32Array.from(values) : Float16Array.from(values);
}
