/** Plans the model of a checkpoint and its memory, without preparing, building or loading anything. */
import type { Checkpoint } from "../weights/checkpoint.ts";
import { modelContentHash } from "./build-model.ts";
import type { DecoderExport, DecoderGraph, DecoderShape, KvLayout } from "./built-model.ts";
import { withOutputWidth } from "./decoder-shape.ts";
import { modelCosts, type ModelCosts } from "./model-costs.ts";
import type { ConfiguredModel, ModelDefinition } from "./model-definition.ts";
import { configureGraphs, type GraphOptions, type ModelGraphs } from "./model-graphs.ts";
import { exportCosts } from "./onnx-export/export-costs.ts";
import { openExport } from "./onnx-export/open-export.ts";
import type { ResolvedDtype } from "./precision.ts";
import { refuseVisionParts } from "./vision-parts.ts";
import type { VisionParts } from "./vision-parts.ts";
import { withoutEqualBranches } from "./widened-layers.ts";

export interface ModelPlan {
  readonly definition: ModelDefinition;
  readonly model: ConfiguredModel;
  readonly dtype: ResolvedDtype;
  /** Whether prompts and large batches are computed with 8-bit weights of their own. */
  readonly widensPrompts: boolean;
  /** Null for a model that does not accept images, and for an export. */
  readonly visionParts: VisionParts | null;
  /** Hash of weights, configuration and dtype. */
  readonly contentHash: string;
  /** Maximum number of tokens per sequence. */
  readonly maxModelLen: number;
  readonly decoder: ConfiguredModel["decoder"] &
    Pick<DecoderShape, "kvElementType"> &
    Pick<DecoderGraph | DecoderExport, "form">;
  /** Null for an export, which has neither slots nor blocks. */
  readonly kvLayout: KvLayout | null;
  readonly costs: ModelCosts;
}

/** @throws EngineError like `buildModel`. Reads all weights once for their hash. */
export async function planCheckpoint(
  checkpoint: Checkpoint,
  options: GraphOptions & { readonly signal?: AbortSignal },
): Promise<ModelPlan> {
  if (checkpoint.onnxFileNames !== null) {
    refuseVisionParts(options, "The parts of a ready-made ONNX export have the types and the device of the whole.");
    const opened = await openExport(checkpoint, checkpoint.onnxFileNames, options);
    const { graphs, dtype } = opened;
    return {
      ...pickDefinition(graphs),
      dtype,
      widensPrompts: false,
      visionParts: null,
      contentHash: opened.model.contentHash,
      decoder: opened.model.decoder,
      kvLayout: null,
      costs: exportCosts(opened),
    };
  }
  const graphs = configureGraphs(checkpoint.config, withoutEqualBranches(checkpoint, options));
  const { model, dtype, kvElementType, visionParts } = graphs;
  return {
    ...pickDefinition(graphs),
    dtype,
    widensPrompts: graphs.precision.prompts !== undefined,
    visionParts,
    contentHash: await modelContentHash(checkpoint, graphs, options.signal),
    decoder: { ...withOutputWidth(model.decoder, options.output), kvElementType, form: "in-place" },
    kvLayout: graphs.kvLayout,
    costs: modelCosts(checkpoint, graphs),
  };
}

function pickDefinition({
  definition,
  model,
  maxModelLen,
}: ModelGraphs): Pick<ModelGraphs, "definition" | "model" | "maxModelLen"> {
  return { definition, model, maxModelLen };
}
