/** Decoding over KV slots: each sequence has a cache of the full length, and attention is one node per layer. */
import { EngineError } from "../../contract/errors.ts";
import { groupQueryAttention } from "../../graph/contrib-ops.ts";
import { cast, concat, expand, reshape, scatterRows, shapeOf, split } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { presentName } from "../decoder-shape.ts";
import { logitRows, type GraphContext } from "../graph-context.ts";
import { separate } from "../linear.ts";
import { createAdapterInputs } from "./adapter-inputs.ts";
import type { CachedAttention, DecoderInputs } from "./decoder-inputs.ts";
import { headWidths } from "./heads.ts";
import { attendToInt8Cache, flat, runShape, type RunShape } from "./int8-slot-attention.ts";
import { batch, cacheLength, imageTokens, length, tokens } from "./sizes.ts";
import { attentionRotates, queryKeyValue, rotaryRows, type SlotValues } from "./slot-projections.ts";
import { createSlotRecurrence } from "./slot-recurrence.ts";
import { createSlotTail } from "./slot-tail.ts";
import { attendToWholeImages, createImageRows } from "./whole-image-attention.ts";

export function createSlotInputs(context: GraphContext): DecoderInputs {
  const { graph } = context;
  const inputIds = graph.input("input_ids", "int64", [batch, length]);
  const inputShape = shapeOf(graph, "input_ids.shape", inputIds);
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  const values: SlotValues = {
    prefix: "",
    sizes: { length, tokens },
    tokenIds: reshape(graph, "input_ids.flat", inputIds, anySize, [tokens]),
    inputShape,
    batchShape: concat(graph, "batch_shape", [inputShape, anySize], 0),
    seqlensK: graph.input("seqlens_k", "int32", [batch]),
    totalSequenceLength: graph.input("total_sequence_length", "int32", []),
    rotaryRows: new Map(),
    imagePositions: null,
    imageRows: null,
  };
  createAdapterInputs(context);
  const inputs: DecoderInputs = {
    ...partsOf(context, values),
    logitRows: graph.input("logit_rows", "int64", [logitRows]),
    tail() {
      const tail = createSlotTail(context, values, inputs.logitRows);
      return {
        inputs: { ...inputs, ...partsOf(context, tail.values), logitRows: tail.logitRows },
        keep: tail.keep,
      };
    },
    withImages(embedded, numLevels) {
      const width = Number(embedded.shape[1]);
      const imageEmbeds = graph.input("image_embeds", "float32", [imageTokens, (1 + numLevels) * width]);
      const imagePositions = graph.input("image_positions", "int64", [imageTokens, 1]);
      values.imagePositions = imagePositions;
      const rows = cast(graph, "image_embeds.cast", imageEmbeds, embedded.elementType);
      const place = (name: string, data: Value, updates: Value): Value =>
        scatterRows(graph, name, data, imagePositions, updates);
      if (numLevels === 0) return { embedded: place("embedded.with_images", embedded, rows), levels: [] };
      const sizes = Array.from({ length: 1 + numLevels }, () => width);
      const [first, ...others] = split(graph, "image_embeds.levels", rows, { axis: 1, sizes });
      const zero = graph.constant("image_levels.zero", context.precision.activations, [1, 1], [0]);
      const shape = shapeOf(graph, "embedded.shape", embedded);
      const none = expand(graph, "image_levels.none", zero, shape, embedded.shape);
      return {
        embedded: place("embedded.with_images", embedded, first!),
        levels: others.map((updates, level) => place(`image_levels.${level}`, none, updates)),
      };
    },
    ...createSlotRecurrence(context, values),
  };
  return inputs;
}

/** The inputs that depend on which of the run's tokens are computed. */
function partsOf(context: GraphContext, values: SlotValues): Pick<DecoderInputs, "tokenIds" | "positions" | "attend"> {
  const { graph, kvPrecision } = context;
  const run = kvPrecision.kind === "int8" ? runShape(context, values) : null;
  const anySize = graph.constant("any_size", "int64", [1], [-1]);
  return {
    tokenIds: values.tokenIds,
    positions() {
      const rows = rotaryRows(context, values, "position");
      return reshape(graph, `${values.prefix}tokens.positions`, rows, anySize, [values.sizes.tokens]);
    },
    attend: (attention) => attend(context, values, run, attention),
  };
}

function attend(context: GraphContext, values: SlotValues, run: RunShape | null, attention: CachedAttention): Value {
  const { graph, precision, device } = context;
  const { layer, numHeads, numKvHeads, headDim } = attention;
  const elementType = run === null ? precision.activations : "int8";
  const past = (part: string): Value =>
    graph.input(`past.${layer}.${part}`, elementType, [batch, numKvHeads, cacheLength, headDim]);
  const cache = { pastKey: past("key"), pastValue: past("value") };
  const headSink = device === "cpu" ? emptySink(context, numHeads) : null;
  const { output, presentKey, presentValue } =
    run === null
      ? attendToCache(context, values, attention, { ...cache, headSink })
      : attendToInt8Cache(context, values, attention, { ...cache, headSink, run });
  graph.output(presentKey);
  graph.output(presentValue);
  const { imagePositions } = values;
  const { seenImages = "before" } = attention;
  if (seenImages === "before" || imagePositions === null) return output;
  if (run !== null) {
    throw new EngineError(
      "invalid_configuration",
      'In this model the tokens of an image see each other, which an int8 KV cache does not support. Choose the KV cache dtype "model" or "auto".',
      { setting: "kvCacheDtype" },
    );
  }
  values.imageRows ??= createImageRows(context, { ...values, imagePositions }, seenImages);
  const [query] = separate(graph, `${attention.name}.qkv`, attention.projected, headWidths(attention));
  return attendToWholeImages(context, attention, values.imageRows, {
    causal: output,
    query,
    present: [presentKey, presentValue],
  });
}

function attendToCache(
  context: GraphContext,
  values: SlotValues,
  attention: CachedAttention,
  cache: { readonly pastKey: Value; readonly pastValue: Value; readonly headSink: Value | null },
): ReturnType<typeof groupQueryAttention> {
  const { name, layer, rotary } = attention;
  const rotatesInside = attentionRotates(attention);
  const attended = groupQueryAttention(context.graph, name, {
    ...attention,
    ...cache,
    ...queryKeyValue(context, values, attention, rotatesInside),
    rotary: rotatesInside && rotary !== null ? rotary.tables : null,
    seqlensK: values.seqlensK,
    totalSequenceLength: values.totalSequenceLength,
    presentKeyName: presentName(layer, "key", attention.reader),
    presentValueName: presentName(layer, "value", attention.reader),
  });
  return { ...attended, output: flat(context, values, attention, name, attended.output) };
}

/**
 * An attention sink whose share of the softmax is 0. With a sink, ONNX Runtime's CPU kernel avoids its tiled path,
 * which computes sequences of different lengths one after the other, and spreads all heads of all sequences over the
 * threads. Decoding many sequences at once gains far more than long prompts lose.
 */
function emptySink({ graph, precision }: GraphContext, numHeads: number): Value {
  const lowest = Array.from({ length: numHeads }, () => -1e30);
  return graph.constant(`attention.empty_sink.${numHeads}`, precision.activations, [numHeads], lowest);
}
