/** What would be served of a checkpoint, and what its weights and runs will take: nothing is prepared, built or loaded. */
import type { Checkpoint } from "../weights/checkpoint.ts";
import { modelContentHash } from "./build-model.ts";
import type { DecoderExport, DecoderGraph, DecoderShape } from "./built-model.ts";
import type { ConfiguredModel, ModelDefinition } from "./model-definition.ts";
import { configureGraphs, type GraphOptions, type ModelGraphs } from "./model-graphs.ts";
import { openExport } from "./onnx-export/open-export.ts";
import { planExport } from "./onnx-export/plan-export.ts";
import { planModel, type PlannedModel } from "./plan-model.ts";
import type { ResolvedDtype } from "./precision.ts";

export interface PlannedCheckpoint {
  readonly definition: ModelDefinition;
  readonly model: ConfiguredModel;
  readonly dtype: ResolvedDtype;
  /** Of weights, configuration and dtype. */
  readonly contentHash: string;
  /** Most tokens of one sequence. */
  readonly maxModelLen: number;
  readonly decoder: ConfiguredModel["decoder"] &
    Pick<DecoderShape, "kvElementType"> &
    Pick<DecoderGraph | DecoderExport, "form">;
  readonly planned: PlannedModel;
}

/** @throws EngineError as `buildModel` does; reads all weights once for their hash. */
export async function planCheckpoint(
  checkpoint: Checkpoint,
  options: GraphOptions & { readonly signal?: AbortSignal },
): Promise<PlannedCheckpoint> {
  if (checkpoint.onnxFileNames !== null) {
    const opened = await openExport(checkpoint, checkpoint.onnxFileNames, options);
    const { graphs, dtype } = opened;
    return {
      ...pickDefinition(graphs),
      dtype,
      contentHash: opened.model.contentHash,
      decoder: opened.model.decoder,
      planned: planExport(opened),
    };
  }
  const graphs = configureGraphs(checkpoint.config, options);
  const { model, dtype, precision } = graphs;
  return {
    ...pickDefinition(graphs),
    dtype,
    contentHash: await modelContentHash(checkpoint, precision, options.signal),
    decoder: { ...model.decoder, kvElementType: precision.activations, form: "in-place" },
    planned: planModel(checkpoint, graphs),
  };
}

function pickDefinition({
  definition,
  model,
  maxModelLen,
}: ModelGraphs): Pick<ModelGraphs, "definition" | "model" | "maxModelLen"> {
  return { definition, model, maxModelLen };
}
