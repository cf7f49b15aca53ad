/** Options with which the engine thread loads its sessions. */
import type { DeviceName, EngineConfig } from "../contract/config.ts";
import type { BuiltModel } from "../models/built-model.ts";
import type { SessionOptions } from "../runtime/session.ts";
import type { SharedWeights } from "../runtime/shared-weights.ts";
import { numThreadsOf, numThreadsOfAll } from "../runtime/usable-cores.ts";
import { CopyActivity } from "../thread/copy-activity.ts";
import type { ModelCopy } from "../thread/messages.ts";

export function decoderSessionOptions(config: EngineConfig, { externalDataFolder }: BuiltModel): SessionOptions {
  const { device, deviceId, numThreads } = config;
  return { device, deviceId, numThreads, externalDataFolder };
}

/** For a graph that we built: on CUDA, block-quantised weights are multiplied by the fused kernels. */
export function slotSessionOptions(
  config: EngineConfig,
  model: BuiltModel,
  copy: ModelCopy | null = null,
): SessionOptions {
  const options = decoderSessionOptions(config, model);
  if (config.device !== "cuda") return { ...options, ...copyOptions(config, copy, copy?.weights.decoder) };
  const configEntries = {
    "ep.cuda.fpa_intb_gemm": "1",
    // The kernels are timed when the session loads, by default for products of up to 2,048 rows.
    "ep.cuda.fpa_intb_profile_m": rowCountsOf(config).join(","),
  };
  return { ...options, configEntries };
}

/** The numbers of rows for which the fused kernels are chosen: powers of two, the last as many as a step has or more. */
function rowCountsOf({ maxNumBatchedTokens, maxNumSequences }: EngineConfig): number[] {
  const mostRows = Math.max(maxNumBatchedTokens, maxNumSequences);
  const numCounts = 1 + Math.ceil(Math.log2(mostRows));
  return Array.from({ length: numCounts }, (_, exponent) => 2 ** exponent);
}

/** Also, steps that decode become captured graphs on CUDA. */
export function pagedSessionOptions(
  config: EngineConfig,
  model: BuiltModel,
  copy: ModelCopy | null = null,
): SessionOptions {
  const options = slotSessionOptions(config, model, copy);
  if (config.device !== "cuda") return options;
  return { ...options, cudaProviderOptions: { enable_cuda_graph: config.enforceEager === true ? "0" : "1" } };
}

/**
 * Whether images are encoded on the CPU. They are then encoded beside the steps: an image takes as long as hundreds of
 * steps, and the run uses memory of the host only. A GPU computes one run after the other anyway.
 */
export function encodesOnHost(config: EngineConfig, model: BuiltModel): boolean {
  return visionDeviceOf(config, model) === "cpu";
}

/** Of a model with images. */
export function visionDeviceOf({ device }: EngineConfig, { visionEncoder }: BuiltModel): DeviceName {
  return (visionEncoder?.form === "in-place" ? visionEncoder.device : undefined) ?? device;
}

/** The threads of this session do not spin after a run: they would take the cores from the decoder. */
export function visionEncoderSessionOptions(
  config: EngineConfig,
  model: BuiltModel,
  copy: ModelCopy | null = null,
): SessionOptions {
  const device = visionDeviceOf(config, model);
  const options = {
    ...decoderSessionOptions(config, model),
    ...copyOptions(config, copy, copy?.weights.visionEncoder),
  };
  return { ...options, device, configEntries: { "session.intra_op.allow_spinning": "0" } };
}

/**
 * A copy that shares its weights has the threads of all copies while the others rest. Threads do not wait for the next
 * run of their session then: those of another one have the cores.
 */
function copyOptions(
  config: EngineConfig,
  copy: ModelCopy | null,
  sharedWeights: SharedWeights | null = null,
): Partial<SessionOptions> {
  if (copy === null || sharedWeights === null) return {};
  const numThreads = numThreadsOfAll(config);
  if (numThreads <= numThreadsOf(config)) return { sharedWeights };
  const activity = new CopyActivity(copy.activity, copy.index);
  const configEntries = { "session.force_spinning_stop": "1" };
  const own = { numThreads: numThreadsOf(config), areWanted: () => !activity.othersRest };
  // The first copy begins alone.
  if (copy.index === 0) return { sharedWeights, numThreads, otherRuns: own, configEntries };
  return { sharedWeights, otherRuns: { numThreads, areWanted: () => activity.othersRest }, configEntries };
}
