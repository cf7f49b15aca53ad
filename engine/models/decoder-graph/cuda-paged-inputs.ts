/** Decoding over a paged KV cache on CUDA: one PagedAttention node per layer, which finds tokens and blocks itself. */
import { EngineError } from "../../contract/errors.ts";
import { pagedAttention, rotatesInside } from "../../graph/paged-attention-ops.ts";
import type { Value } from "../../graph/value.ts";
import { presentName } from "../decoder-shape.ts";
import type { GraphContext } from "../graph-context.ts";
import { separate } from "../linear.ts";
import { createCudaPagedRecurrence } from "./cuda-paged-recurrence.ts";
import type { CachedAttention, DecoderInputs } from "./decoder-inputs.ts";
import { fullGroups, type FullGroups } from "./full-groups.ts";
import { headWidths, rotaryDimOf } from "./heads.ts";
import {
  createRowRotation,
  pagedInputs,
  pagedValues,
  pastBlocks,
  sequenceBounds,
  tokenPlaces,
  type PagedValues,
  type RowRotation,
} from "./paged-inputs.ts";

export function createCudaPagedInputs(context: GraphContext, blockSize: number): DecoderInputs {
  const { graph } = context;
  const values = pagedValues(context);
  // In the host's memory, so that the operator selects a kernel without waiting for the device.
  const attentionMetadata = graph.input("attention_metadata", "int32", [3]);
  let known: Value | null = null;
  const positions = (): Value => (known ??= tokenPlaces(context, values, sequenceBounds(context, values)).positions);
  const rotate = createRowRotation(context, positions);
  const isFp8 = context.kvPrecision.kind === "fp8";

  const attend = (attention: CachedAttention): Value => {
    const { name, layer, rotary, numKvHeads, headDim, localWindowSize, scale } = attention;
    if ((attention.seenImages ?? "before") !== "before") {
      throw new EngineError(
        "invalid_configuration",
        'In this model the tokens of an image see each other, which paged attention on cuda cannot compute. Choose the KV layout "slots".',
        { setting: "kvLayout" },
      );
    }
    if (isFp8) requireFp8Kernel(attention);
    const groups = isFp8 ? fullGroups(context, attention) : null;
    const isInside = rotary?.rowOf === "position" && rotatesInside(headDim, rotaryDimOf(rotary));
    const inputs = queryKeyValue(context, attention, { rotate: isInside || rotary === null ? null : rotate, groups });
    const { output, presentKey, presentValue } = pagedAttention(graph, name, {
      ...inputs,
      keyCache: pastBlocks(context, attention, { part: "key", blockSize }),
      valueCache: pastBlocks(context, attention, { part: "value", blockSize }),
      cacheScale: isFp8 ? graph.constant("kv_cache.scale", "float32", [1], [1]) : null,
      ...runOf(values),
      attentionMetadata,
      rotary: isInside ? rotary.tables : null,
      numHeads: groups?.numHeads ?? attention.numHeads,
      numKvHeads,
      headDim,
      localWindowSize,
      scale,
      presentKeyName: presentName(layer, "key", attention.reader),
      presentValueName: presentName(layer, "value", attention.reader),
    });
    graph.output(presentKey);
    graph.output(presentValue);
    return groups === null ? output : groups.drop(output);
  };
  return pagedInputs(context, values, { positions, attend, ...createCudaPagedRecurrence(context, values) });
}

/** Of the provider's decoding kernel for 8-bit caches, XQA. Without it, a step takes several times as long as in 16 bits. */
const fp8HeadDims: ReadonlySet<number> = new Set([64, 128, 256]);

/** @throws EngineError `invalid_configuration` for heads that the kernel does not have. */
function requireFp8Kernel({ headDim }: CachedAttention): void {
  if (fp8HeadDims.has(headDim)) return;
  throw new EngineError(
    "invalid_configuration",
    `An FP8 KV cache is for heads of 64, 128 or 256 numbers; this model has heads of ${headDim}. Choose the KV cache ` +
      'dtype "model" or "auto".',
    { setting: "kvCacheDtype" },
  );
}

function runOf({ cumulativeLengths, pastLengths, blockTable }: PagedValues): Omit<PagedValues, "tokenIds" | "isImage"> {
  return { cumulativeLengths, pastLengths, blockTable };
}

/** @param form `rotate` is null if attention rotates by itself; it then takes packed projections of full groups too. */
function queryKeyValue(
  context: GraphContext,
  attention: CachedAttention,
  { rotate, groups }: { readonly rotate: RowRotation | null; readonly groups: FullGroups | null },
): { readonly query: Value; readonly key: Value | null; readonly value: Value | null } {
  const { name, projected, rotary, numHeads, numKvHeads } = attention;
  if (projected.kind === "packed" && rotate === null && groups === null) {
    return { query: projected.value, key: null, value: null };
  }
  const [query, key, value] = separate(context.graph, `${name}.qkv`, projected, headWidths(attention));
  const filled = (rotated: Value): Value => (groups === null ? rotated : groups.fill(rotated));
  if (rotate === null || rotary === null) return { query: filled(query), key, value };
  return {
    query: filled(rotate(`${name}.query`, query, rotary, numHeads)),
    key: rotate(`${name}.key`, key, rotary, numKvHeads),
    value,
  };
}
