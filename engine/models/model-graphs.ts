/** Combines a checkpoint's configuration with the settings and provides its graphs, before any weight is prepared. */
import type { DeviceName, DtypeName } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { createGraphContext, type GraphContext, type Precision } from "./graph-context.ts";
import type { ConfiguredModel, ModelDefinition } from "./model-definition.ts";
import { precisionOf, resolveDtype, type ResolvedDtype } from "./precision.ts";
import { findModelDefinition } from "./registry.ts";
import type { WeightSource } from "./weight-source.ts";

export interface GraphOptions {
  readonly dtype: DtypeName;
  readonly device: DeviceName;
  /** Maximum number of tokens per sequence; null for the checkpoint's own limit. */
  readonly maxModelLen: number | null;
}

export interface ModelGraphs {
  readonly definition: ModelDefinition;
  readonly model: ConfiguredModel;
  readonly dtype: ResolvedDtype;
  readonly precision: Precision;
  readonly maxModelLen: number;
  buildDecoder(this: void, weights: WeightSource): GraphContext;
  /** Null for a model that does not accept images. */
  buildVisionEncoder(this: void, weights: WeightSource): GraphContext | null;
}

/**
 * @param config The content of config.json.
 * @throws EngineError `unsupported_model` and `invalid_checkpoint` (both name the field), `invalid_configuration` for a
 * dtype that the device lacks or a length above the checkpoint's. Building throws the errors of tensors.
 */
export function configureGraphs(config: unknown, { dtype: name, device, maxModelLen }: GraphOptions): ModelGraphs {
  const dtype = resolveDtype(name, device);
  const precision = precisionOf(dtype, device);
  const definition = findModelDefinition(config);
  const model = definition.configure(config);
  const length = checkedLength(maxModelLen, model.maxPositionEmbeddings);
  return {
    definition,
    model,
    dtype,
    precision,
    maxModelLen: length,
    buildDecoder(weights) {
      const context = createGraphContext("decoder", { weights, precision, device });
      model.buildDecoder(context, length);
      return context;
    },
    buildVisionEncoder(weights) {
      if (model.visionEncoder === null) return null;
      const context = createGraphContext("vision_encoder", { weights, precision, device });
      model.visionEncoder.build(context);
      return context;
    },
  };
}

function checkedLength(maxModelLen: number | null, maxPositionEmbeddings: number): number {
  if (maxModelLen === null) return maxPositionEmbeddings;
  if (maxModelLen > maxPositionEmbeddings) {
    throw new EngineError(
      "invalid_configuration",
      `The model length is set to ${maxModelLen} tokens; the checkpoint's limit is ${maxPositionEmbeddings}.`,
      { setting: "maxModelLen" },
    );
  }
  return maxModelLen;
}
