/** Shared settings of the speed benches, so that all sides do the same work. */
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { DtypeName } from "../../engine/index.ts";
import type { EngineBenchOptions } from "./engine-throughput.ts";
import { writeBenchCheckpoint } from "./write-checkpoint.ts";

/** Checkpoints, GGUF files and caches; created by `main.ts`, kept between runs. */
export const benchFolder = fileURLToPath(new URL("../../.cache/bench/", import.meta.url));

export const numThreads = Math.min(2, availableParallelism());
export const concurrencies = [1, 8, 32] as const;
/** Tokens in the context before decoding is measured. */
export const contextTokens = 256;
export const decodeTokens = 48;
export const prefillTokens = 512;

export type BenchDtype = "int8" | "int4";
export const benchDtypes: readonly BenchDtype[] = ["int8", "int4"];

/** Writes the checkpoint if it is missing. */
export function engineOptions(dtype: DtypeName): EngineBenchOptions {
  const model = writeBenchCheckpoint(join(benchFolder, "smollm2-135m-random"));
  return { model, dtype, numThreads, cacheFolder: join(benchFolder, "cache") };
}
