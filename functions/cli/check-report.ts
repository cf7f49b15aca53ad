/** The findings of `fovea check`, as a table for people and as JSON for programs. */
import type { EngineConfig, GpuInspection, ModelInspection } from "../../engine/index.ts";
import type { Config } from "../settings/config.ts";
import type { MeasuredStage } from "./check-run.ts";
import type { DescribedSetting } from "./usage.ts";

/** "unknown" for a device with its own memory. */
export type Fit = "fits" | "does not fit" | "unknown";

export interface CheckReport {
  readonly config: Config;
  readonly inspection: ModelInspection;
  /** Null if the settings want no NVIDIA GPU. */
  readonly gpu: GpuInspection | null;
  /** Those that are set, secrets masked. */
  readonly remoteSettings: readonly DescribedSetting[];
  readonly isRunWanted: boolean;
  /** Null without `--run`, or if the run was skipped. */
  readonly measured: readonly MeasuredStage[] | null;
  readonly fit: Fit;
}

/** A heading, or a name with a value and a note. */
type Line = string | readonly [name: string, value: string, note?: string];

export function formatReport(report: CheckReport): string {
  return [
    ...modelLines(report),
    ...memoryLines(report),
    ...imageLines(report),
    ...processorLines(report),
    ...remoteLines(report),
    ...measuredLines(report),
    ...verdictLines(report),
  ]
    .map(formatLine)
    .join("\n")
    .concat("\n");
}

function modelLines({ config: { engine }, inspection, gpu }: CheckReport): Line[] {
  const { architecture, pipeline, visionParts, dtype, quantisation, contentHash, maxModelLen, vocabSize } = inspection;
  const { hasChatTemplate, widensPrompts } = inspection;
  return [
    "Model",
    ["model", engine.model],
    ["architecture", architecture],
    ...(pipeline === null ? [] : [["pipeline", pipeline] as const]),
    ["dtype", dtype, engine.dtype === "auto" ? "chosen by DTYPE=auto" : ""],
    ...(quantisation === null ? [] : [["quantised by", quantisation] as const]),
    ...(widensPrompts ? [["prompts", "int8", "weights beside the others; PROMPT_DTYPE"] as const] : []),
    ["device", engine.device],
    ...(gpu === null ? [] : [gpuLine(gpu)]),
    ...(visionParts === null
      ? []
      : ([
          ["vision tower", `${visionParts.vision.dtype} on ${visionParts.vision.device}`],
          ["projector", `${visionParts.projector.dtype} on ${visionParts.projector.device}`],
        ] as const)),
    ["content hash", contentHash.slice(0, 16)],
    ["longest sequence", `${maxModelLen} tokens`, engine.maxModelLen === null ? "the checkpoint's limit" : ""],
    ["vocabulary", `${vocabSize} tokens`],
    ["chat template", hasChatTemplate ? "yes" : "none", hasChatTemplate ? "" : "conversations are rejected"],
  ];
}

/** A machine without the GPU can still check a model for one that has it. */
export function gpuLine(gpu: GpuInspection): Line {
  if (gpu.kind === "unusable") return ["GPU of this machine", "none", gpu.reason];
  const { name, memoryBytes, computeCapability, driverCudaVersion } = gpu.device;
  const driver = `compute capability ${computeCapability}, driver for CUDA ${driverCudaVersion}`;
  return ["GPU of this machine", `${name}, ${bytes(memoryBytes)}`, driver];
}

function memoryLines({
  config: { engine },
  inspection: { memory, machineBytes, maxNumSequences, worstImage },
  fit,
}: CheckReport): Line[] {
  const { weights, kvCache, encoderCache, step, processorCacheBytes, programBytes, requestBytes, totalBytes } = memory;
  const { maxNumBatchedTokens } = engine;
  const isLimited = maxNumSequences < engine.maxNumSequences;
  const ofImages: Line[] = [
    ["encoder cache", bytes(encoderCache.maxBytes), `${encoderCache.maxNumEmbeddings} embeddings`],
    ["processor cache", bytes(processorCacheBytes), "MM_PROCESSOR_CACHE_GB"],
  ];
  return [
    "",
    "Memory",
    ["weights, embedding table", bytes(weights.embedding)],
    ["weights, decoder", bytes(weights.decoder)],
    ...(worstImage === null ? [] : [["weights, vision encoder", bytes(weights.visionEncoder)] as const]),
    ...kvCacheLines(engine, kvCache, maxNumSequences),
    ...(isLimited ? [["", "", `no room for more; MAX_NUM_SEQS=${engine.maxNumSequences}`] as const] : []),
    ["  per sequence", bytes(kvCache.bytesPerSequence)],
    ["  per token", bytes(kvCache.bytesPerToken)],
    ...(kvCache.stateBytesPerSequence === 0
      ? []
      : [["  recurrent states", bytes(kvCache.stateBytesPerSequence), "per sequence of any length"] as const]),
    ["decoder, one step", bytes(step.decoderBytes), `estimate; MAX_NUM_BATCHED_TOKENS=${maxNumBatchedTokens}`],
    ...(worstImage === null
      ? []
      : [["vision encoder, one image", bytes(step.visionEncoderBytes), "estimate"] as const]),
    ["logits", bytes(step.logitsBytes)],
    ...(worstImage === null ? [] : ofImages),
    ["program", bytes(programBytes), "Node, ONNX Runtime, tokenizer; approximate"],
    ["requests in progress", bytes(requestBytes), "processed images and garbage; approximate"],
    ["total", bytes(totalBytes)],
    ["machine", bytes(machineBytes), fit === "unknown" ? `the host's; the memory of ${engine.device} is unknown` : ""],
  ];
}

function kvCacheLines(
  { device, gpuMemoryUtilization, numBlocks }: Pick<EngineConfig, "device" | "gpuMemoryUtilization" | "numBlocks">,
  { reservedBytes, blocks }: ModelInspection["memory"]["kvCache"],
  maxNumSequences: number,
): Line[] {
  if (blocks === null) {
    return [["KV cache", bytes(reservedBytes), `reserved for ${maxNumSequences} sequences, committed when touched`]];
  }
  const pool = `${blocks.numBlocks} blocks of ${blocks.blockSize} tokens: ${blocks.numTokens} tokens`;
  const isLeast = device !== "cpu" && (numBlocks ?? null) === null;
  if (!isLeast) return [["KV cache", bytes(reservedBytes), `${pool} at once; sequences share them`]];
  return [
    ["KV cache", bytes(reservedBytes), `at least: ${pool}, one sequence`],
    ["", "", `it takes what GPU_MEMORY_UTILIZATION=${gpuMemoryUtilization} leaves`],
  ];
}

const bounds: Readonly<Record<"model" | "settings", string>> = {
  model: "the image with the most features",
  settings: "set by LIMIT_MM_PER_PROMPT; larger images are accepted and take more",
};

function imageLines({ inspection: { worstImage, maxModelLen } }: CheckReport): Line[] {
  if (worstImage === null) return ["", "Images", ["none", "the model does not accept images"]];
  const { size, boundedBy, numTokens, numEmbeddings, maxPerPrompt, numFitting } = worstImage;
  return [
    "",
    "Images",
    ["largest", `${size.width} x ${size.height}`, bounds[boundedBy]],
    ["tokens per image", String(numTokens), `including ${numEmbeddings} embeddings`],
    ["images per prompt", String(maxPerPrompt), "LIMIT_MM_PER_PROMPT, or the model's own limit"],
    ["images that fit", String(numFitting), `into ${maxModelLen} tokens, at the largest size`],
  ];
}

function processorLines({ inspection: { logitsProcessors } }: CheckReport): Line[] {
  if (logitsProcessors.length === 0) return ["", "Logits processors", ["none", ""]];
  return [
    "",
    "Logits processors",
    ...logitsProcessors.map(({ name, error }): Line => [name, error === null ? "loads" : `does not load: ${error}`]),
  ];
}

function remoteLines({ remoteSettings }: CheckReport): Line[] {
  if (remoteSettings.length === 0) return ["", "S3 and Redis", ["none set", ""]];
  return ["", "S3 and Redis", ...remoteSettings.map(({ name, value, source }): Line => [name, value, source])];
}

function measuredLines({ measured }: CheckReport): Line[] {
  if (measured === null) return [];
  return [
    "",
    "Measured (resident memory)",
    ...measured.map(({ name, computedBytes, measuredBytes }): Line => [
      name,
      bytes(measuredBytes),
      `computed ${bytes(computedBytes)}`,
    ]),
  ];
}

function verdictLines({ config: { engine }, inspection, fit, isRunWanted, measured }: CheckReport): Line[] {
  const { memory, machineBytes, logitsProcessors } = inspection;
  const lines: Line[] = [""];
  const numBroken = logitsProcessors.filter(({ error }) => error !== null).length;
  if (numBroken > 0)
    lines.push(`WILL NOT START: ${numBroken} of ${logitsProcessors.length} logits processors do not load.`);
  switch (fit) {
    case "fits":
      lines.push(`Fits: ${bytes(memory.totalBytes)} of ${bytes(machineBytes)} with every sequence at its longest.`);
      break;
    case "unknown":
      lines.push(`Cannot tell whether it fits: ${engine.device} has its own memory.`);
      break;
    case "does not fit": {
      lines.push(
        `DOES NOT FIT: ${bytes(memory.totalBytes)} with every sequence at its longest; the machine has ${bytes(machineBytes)}.`,
        adviceFor(inspection),
      );
      break;
    }
    default:
      fit satisfies never;
  }
  if (isRunWanted && measured === null) lines.push("The dummy run was skipped.");
  return lines;
}

function adviceFor({ memory, machineBytes, maxNumSequences, maxModelLen }: ModelInspection): string {
  const { bytesPerSequence, stateBytesPerSequence, bytesPerToken, reservedBytes } = memory.kvCache;
  const roomBytes = machineBytes - (memory.totalBytes - reservedBytes);
  if (roomBytes < bytesPerToken)
    return "It does not fit even without the KV cache: use a smaller DTYPE or a larger machine.";
  const numSequences = Math.floor(roomBytes / bytesPerSequence);
  const bytesOfTokens = roomBytes / maxNumSequences - stateBytesPerSequence;
  const numTokens = Math.min(maxModelLen, Math.floor(bytesOfTokens / bytesPerToken));
  const choices = [
    ...(numSequences > 0 ? [`MAX_NUM_SEQS=${numSequences}`] : []),
    ...(numTokens > 0 ? [`MAX_MODEL_LEN=${numTokens}`] : []),
  ];
  return `It fits with ${choices.join(" or ")}.`;
}

function formatLine(line: Line): string {
  if (typeof line === "string") return line;
  const [name, value, note = ""] = line;
  return `  ${name.padEnd(28)}${note === "" ? value : `${value.padEnd(12)}  ${note}`}`.trimEnd();
}

/** The same facts with bytes as numbers; secrets are masked here too. */
export function toJsonReport({
  config: { engine },
  inspection,
  gpu,
  remoteSettings,
  measured,
  fit,
}: CheckReport): object {
  const { worstImage, logitsProcessors, ...rest } = inspection;
  return {
    ok: fit !== "does not fit" && logitsProcessors.every(({ error }) => error === null),
    fit,
    model: engine.model,
    device: engine.device,
    gpu,
    maxNumBatchedTokens: engine.maxNumBatchedTokens,
    ...rest,
    worstImage: worstImage && {
      size: worstImage.size,
      boundedBy: worstImage.boundedBy,
      numTokens: worstImage.numTokens,
      numEmbeddings: worstImage.numEmbeddings,
      numBytes: worstImage.numBytes,
      maxPerPrompt: worstImage.maxPerPrompt,
      numFitting: worstImage.numFitting,
    },
    logitsProcessors,
    remoteSettings,
    measured,
  };
}

function bytes(numBytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"] as const;
  let value = numBytes;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}
