/** Inspects a model without serving it. Imports its dependencies on demand, so that servers do not load them. */
import type { EngineConfig } from "../contract/config.ts";
import type { EngineDependencies } from "../contract/engine.ts";
import type { ModelInspection } from "./inspect-checkpoint.ts";
import type { GpuInspection } from "./inspect-gpu.ts";

/**
 * Reads a checkpoint without loading it: what it is, which limits it has, and the memory that serving it takes.
 *
 * @param gpu What `inspectGpu` returned. Default null: the memory of a GPU is unknown.
 * @throws EngineError `invalid_configuration`, `invalid_checkpoint`, `unsupported_model` or `aborted`, as loading does;
 *   not for logits processors, whose errors it lists.
 */
export async function inspectModel(
  config: EngineConfig,
  dependencies: Pick<EngineDependencies, "createS3Client" | "onProgress">,
  signal: AbortSignal,
  gpu: GpuInspection | null = null,
): Promise<ModelInspection> {
  const inspection = await import("./inspect-checkpoint.ts");
  return inspection.inspectCheckpoint(config, dependencies, signal, gpu);
}
