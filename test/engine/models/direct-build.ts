/** Builds models without an engine, and writes everything into a folder of the test. */
import type { DeviceName, DtypeName } from "../../../engine/contract/config.ts";
import { buildModel } from "../../../engine/models/build-model.ts";
import type { BuiltModel, KvLayout } from "../../../engine/models/built-model.ts";
import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";

export interface DirectBuildOptions {
  readonly cacheFolder: string;
  readonly dtype?: DtypeName;
  readonly device?: DeviceName;
  readonly maxModelLen?: number;
  readonly kvLayout?: KvLayout;
  readonly signal?: AbortSignal;
}

export async function buildFrom(checkpointFolder: string, options: DirectBuildOptions): Promise<BuiltModel> {
  const { cacheFolder, dtype = "float32", device = "cpu", maxModelLen = null, kvLayout, signal } = options;
  const checkpoint = await openCheckpoint(checkpointFolder, { cacheFolder });
  const common = { dtype, device, maxModelLen, cacheFolder, numThreads: 1 };
  return buildModel(checkpoint, { ...common, ...(kvLayout && { kvLayout }), ...(signal && { signal }) });
}
