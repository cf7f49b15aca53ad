/** Decoding over a paged KV cache on CUDA: one PagedAttention node per layer, which finds tokens and blocks itself. */
import { EngineError } from "../../contract/errors.ts";
import { pagedAttention, rotatesInside } from "../../graph/paged-attention-ops.ts";
import type { Value } from "../../graph/value.ts";
import type { GraphContext } from "../graph-context.ts";
import { presentName } from "../kv-heads.ts";
import { separate } from "../linear.ts";
import { createCudaPagedRecurrence } from "./cuda-paged-recurrence.ts";
import type { CachedAttention, DecoderInputs } from "./decoder-inputs.ts";
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

  const attend = (attention: CachedAttention): Value => {
    const { name, layer, rotary, numHeads, numKvHeads, headDim, localWindowSize, scale } = attention;
    if ((attention.seenImages ?? "before") !== "before") {
      throw new EngineError(
        "invalid_configuration",
        "In this model the tokens of an image see each other, which paged attention on cuda cannot compute; set KV_LAYOUT to slots.",
      );
    }
    const isInside = rotary?.rowOf === "position" && rotatesInside(headDim, rotaryDimOf(rotary));
    const { output, presentKey, presentValue } = pagedAttention(graph, name, {
      ...queryKeyValue(context, attention, isInside || rotary === null ? null : rotate),
      keyCache: pastBlocks(context, attention, { part: "key", blockSize }),
      valueCache: pastBlocks(context, attention, { part: "value", blockSize }),
      ...runOf(values),
      attentionMetadata,
      rotary: isInside ? rotary.tables : null,
      numHeads,
      numKvHeads,
      headDim,
      localWindowSize,
      scale,
      presentKeyName: presentName(layer, "key", attention.reader),
      presentValueName: presentName(layer, "value", attention.reader),
    });
    graph.output(presentKey);
    graph.output(presentValue);
    return output;
  };
  return pagedInputs(context, values, { positions, attend, ...createCudaPagedRecurrence(context, values) });
}

function runOf({ cumulativeLengths, pastLengths, blockTable }: PagedValues): Omit<PagedValues, "tokenIds" | "isImage"> {
  return { cumulativeLengths, pastLengths, blockTable };
}

/** @param rotate Null if attention rotates by itself; it then takes packed projections too. */
function queryKeyValue(
  context: GraphContext,
  attention: CachedAttention,
  rotate: RowRotation | null,
): { readonly query: Value; readonly key: Value | null; readonly value: Value | null } {
  const { name, projected, rotary, numHeads, numKvHeads } = attention;
  if (projected.kind === "packed" && rotate === null) return { query: projected.value, key: null, value: null };
  const [query, key, value] = separate(context.graph, `${name}.qkv`, projected, headWidths(attention));
  if (rotate === null || rotary === null) return { query, key, value };
  return {
    query: rotate(`${name}.query`, query, rotary, numHeads),
    key: rotate(`${name}.key`, key, rotary, numKvHeads),
    value,
  };
}
