/** Builds models without an engine, and writes everything into a folder of the test. */
import type { DeviceName, DtypeName } from "../../../engine/contract/config.ts";
import type { BuiltModel, KvLayout } from "../../../engine/models/built-model.ts";
import type { KvPrecision } from "../../../engine/models/graph-context.ts";
import type { WidenedLayers } from "../../../engine/models/precision.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { buildModel } from "../../support/engine/shipped-models.ts";

export interface DirectBuildOptions {
  readonly cacheFolder: string;
  readonly dtype?: DtypeName;
  readonly device?: DeviceName;
  readonly maxModelLen?: number;
  readonly kvLayout?: KvLayout;
  readonly kvPrecision?: KvPrecision;
  readonly widenedLayers?: WidenedLayers;
  readonly fusesExperts?: boolean;
  readonly sampleTokens?: () => Promise<readonly number[]>;
  readonly signal?: AbortSignal;
}

export async function buildFrom(checkpointFolder: string, options: DirectBuildOptions): Promise<BuiltModel> {
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder: options.cacheFolder });
  return buildModel(checkpoint, { dtype: "float32", device: "cpu", maxModelLen: null, numThreads: 1, ...options });
}
