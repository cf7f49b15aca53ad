/** The findings of `fovea check`, as a table for people and as JSON for programs. */
import type { EngineConfig, GpuInspection, ModelInspection } from "../../engine/index.ts";
import type { Config } from "../settings/config.ts";
import type { MeasuredStage } from "./check-run.ts";
import type { DescribedSetting } from "./usage.ts";

/** "unknown" for a device whose memory is. */
export type Fit = "fits" | "does not fit" | "unknown";

/** On a GPU, its memory alone decides; only a part of the plan is for the host. */
export function fitOf({ engine }: Config, { memory, machineBytes, gpuPlan }: ModelInspection): Fit {
  if (gpuPlan !== null) return gpuPlan.kvBytes <= gpuPlan.kvRoomBytes ? "fits" : "does not fit";
  if (engine.device !== "cpu") return "unknown";
  return memory.totalBytes <= machineBytes ? "fits" : "does not fit";
}

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
  const { hasChatTemplate, widensPrompts, adapter, adapters } = inspection;
  return [
    "Model",
    ["model", engine.model],
    ["architecture", architecture],
    ...(adapter === null ? [] : [["adapter", adapter, engine.loraAdapter ?? ""] as const]),
    ...adapters.map(({ name, rank }, index) => [index === 0 ? "LoRA modules" : "", name, `rank ${rank}`] as const),
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
  inspection: { memory, machineBytes, gpuPlan, maxNumSequences, worstImage },
}: CheckReport): Line[] {
  const {
    weights,
    adapterBytes,
    experts,
    kvCache,
    encoderCache,
    step,
    furtherCopyBytes,
    processorCacheBytes,
    programBytes,
    requestBytes,
    totalBytes,
  } = memory;
  const { maxNumBatchedTokens, dataParallelSize } = engine;
  const isLimited = maxNumSequences < engine.maxNumSequences;
  const ofImages: Line[] = [
    ["encoder cache", bytes(encoderCache.maxBytes), `${encoderCache.maxNumEmbeddings} embeddings`],
    ["processor cache", bytes(processorCacheBytes), "MM_PROCESSOR_CACHE_GB"],
  ];
  return [
    "",
    (dataParallelSize ?? 1) === 1 ? "Memory" : `Memory of each of ${dataParallelSize} copies (DATA_PARALLEL_SIZE)`,
    ["weights, embedding table", bytes(weights.embedding)],
    ["weights, decoder", bytes(weights.decoder)],
    ...(experts === null
      ? []
      : [["  experts", bytes(experts.all), `part of it; a token reads ${bytes(experts.perToken)}`] as const]),
    ...(adapterBytes === 0 ? [] : [["  LoRA modules", bytes(adapterBytes), "part of it"] as const]),
    ...(worstImage === null ? [] : [["weights, vision encoder", bytes(weights.visionEncoder)] as const]),
    ...kvCacheLines(engine, kvCache, { maxNumSequences, gpuPlan }),
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
    ...(furtherCopyBytes === 0
      ? []
      : [["second copy", bytes(furtherCopyBytes), "computes half of the sequences; DATA_PARALLEL_SIZE"] as const]),
    ["program", bytes(programBytes), "Node, ONNX Runtime, tokenizer; approximate"],
    ["requests in progress", bytes(requestBytes), "processed images and garbage; approximate"],
    ["total", bytes(totalBytes), engine.device === "cpu" ? "" : `of the host and of ${engine.device}`],
    ["machine", bytes(machineBytes), describeMachine(engine)],
    ...gpuLines(engine, gpuPlan),
  ];
}

function describeMachine({ device, dataParallelSize }: EngineConfig): string {
  if ((dataParallelSize ?? 1) > 1) return "share of a copy";
  return device === "cpu" ? "" : "the host's";
}

function gpuLines({ gpuMemoryUtilization, device }: EngineConfig, plan: ModelInspection["gpuPlan"]): Line[] {
  if (plan === null) return device === "cpu" ? [] : [["GPU", "unknown", `the memory of ${device}`]];
  return [
    [
      "GPU, allowed",
      bytes(plan.shareBytes),
      `GPU_MEMORY_UTILIZATION=${gpuMemoryUtilization} of ${bytes(plan.cardBytes)}`,
    ],
    ["  weights", bytes(plan.weightBytes)],
    ["  activations", bytes(plan.activationBytes), "estimate: largest step and image, logits, image features"],
    ["  CUDA", bytes(plan.contextBytes), "approximate: context and libraries"],
    ["  left for keys and values", bytes(Math.max(0, plan.kvRoomBytes)), "estimate; the start measures it"],
  ];
}

function kvCacheLines(
  { device, gpuMemoryUtilization, numBlocks }: Pick<EngineConfig, "device" | "gpuMemoryUtilization" | "numBlocks">,
  { reservedBytes, blocks }: ModelInspection["memory"]["kvCache"],
  { maxNumSequences, gpuPlan }: Pick<ModelInspection, "maxNumSequences" | "gpuPlan">,
): Line[] {
  if (blocks === null) {
    const when = device === "cpu" ? ", committed when touched" : "";
    return [["KV cache", bytes(reservedBytes), `reserved for ${maxNumSequences} sequences${when}`]];
  }
  const pool = `${blocks.numBlocks} blocks of ${blocks.blockSize} tokens: ${blocks.numTokens} tokens`;
  const isPlanned = device !== "cpu" && (numBlocks ?? null) === null;
  if (!isPlanned) return [["KV cache", bytes(reservedBytes), `${pool} at once; sequences share them`]];
  if (gpuPlan !== null && gpuPlan.kvBytes <= gpuPlan.kvRoomBytes) {
    return [["KV cache", bytes(reservedBytes), `about ${pool} at once; sequences share them`]];
  }
  return [
    ["KV cache", bytes(reservedBytes), `at least: ${pool}, one sequence`],
    ["", "", `it takes what GPU_MEMORY_UTILIZATION=${gpuMemoryUtilization} leaves`],
  ];
}

const bounds: Readonly<Record<"model" | "settings", string>> = {
  model: "the image with the most features",
  settings: "set by LIMIT_MM_PER_PROMPT; larger images are accepted and take more",
};

function imageLines({ config: { engine }, inspection: { worstImage, maxModelLen } }: CheckReport): Line[] {
  if (worstImage === null) return ["", "Images", ["none", "the model or LIMIT_MM_PER_PROMPT accepts none"]];
  const { size, boundedBy, numTokens, numEmbeddings, maxPerPrompt, numFitting } = worstImage;
  const { maxVideosPerPrompt, maxVideoFrames } = engine.videoLimits;
  return [
    "",
    "Images",
    ["largest", `${size.width} x ${size.height}`, bounds[boundedBy]],
    ["tokens per image", String(numTokens), `including ${numEmbeddings} embeddings`],
    ["images per prompt", String(maxPerPrompt), "LIMIT_MM_PER_PROMPT, or the model's own limit"],
    ["images that fit", String(numFitting), `into ${maxModelLen} tokens, at the largest size`],
    ["videos per prompt", String(maxVideosPerPrompt), `with up to ${maxVideoFrames} frames each; MAX_VIDEO_FRAMES`],
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
  if (remoteSettings.length === 0) return ["", "Settings of other services", ["none set", ""]];
  return [
    "",
    "Settings of other services",
    ...remoteSettings.map(({ name, value, source }): Line => [name, value, source]),
  ];
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

function verdictLines(report: CheckReport): Line[] {
  const { inspection, fit, isRunWanted, measured } = report;
  const { memory, machineBytes, gpuPlan, logitsProcessors } = inspection;
  const lines: Line[] = [""];
  const numBroken = logitsProcessors.filter(({ error }) => error !== null).length;
  if (numBroken > 0)
    lines.push(`WILL NOT START: ${numBroken} of ${logitsProcessors.length} logits processors do not load.`);
  switch (fit) {
    case "fits":
      lines.push(
        gpuPlan === null
          ? `Fits: ${bytes(memory.totalBytes)} of ${bytes(machineBytes)} with every sequence at its longest.`
          : `Fits, by estimate: the GPU has room for ${sequencesOnGpu(inspection)} at once.`,
      );
      break;
    case "unknown":
      lines.push(`Cannot tell whether it fits: ${reasonOf(report)}`);
      break;
    case "does not fit": {
      if (gpuPlan !== null) {
        const { kvBytes, kvRoomBytes } = gpuPlan;
        lines.push(
          `DOES NOT FIT, by estimate: keys and values of ${sequencesOnGpu(inspection)} take ${bytes(kvBytes)}, and ` +
            `${bytes(Math.max(0, kvRoomBytes))} of the GPU's memory are left for them.`,
          gpuAdviceFor(report.config.engine, inspection, kvRoomBytes),
        );
        break;
      }
      lines.push(
        `DOES NOT FIT: ${bytes(memory.totalBytes)} with every sequence at its longest; the machine has ${bytes(machineBytes)}.`,
        adviceFor(inspection),
      );
      break;
    }
    default:
      fit satisfies never;
  }
  const { worstImage, maxModelLen } = inspection;
  if (worstImage !== null && worstImage.maxPerPrompt > 0 && worstImage.numFitting === 0)
    lines.push(
      `No image of the largest size fits: it takes ${worstImage.numTokens} tokens beside the chat template and the answer, and a sequence has ${maxModelLen}. ` +
        "Raise MAX_MODEL_LEN; smaller images may fit.",
    );
  if (isRunWanted && measured === null) lines.push("The dummy run was skipped.");
  return lines;
}

/** The sequences of full length that the keys and values on the GPU are for. */
function sequencesOnGpu({ memory, maxNumSequences, maxModelLen }: ModelInspection): string {
  const { blocks } = memory.kvCache;
  const numSequences = blocks === null ? maxNumSequences : Math.floor(blocks.numTokens / maxModelLen);
  return `${numSequences} sequence${numSequences === 1 ? "" : "s"} of ${maxModelLen} tokens`;
}

function reasonOf({ config: { engine }, gpu }: CheckReport): string {
  return gpu?.kind === "unusable"
    ? `the size of the GPU's memory is unknown here. ${gpu.reason}`
    : `${engine.device} does not tell the size of its memory.`;
}

function gpuAdviceFor(
  { numBlocks: wantedBlocks }: EngineConfig,
  { memory, maxNumSequences, maxModelLen }: ModelInspection,
  roomBytes: number,
): string {
  const { bytesPerToken, bytesPerSequence, stateBytesPerSequence, blocks } = memory.kvCache;
  const choices: string[] = [];
  if (blocks === null) {
    const numSequences = Math.floor(roomBytes / bytesPerSequence);
    const numTokens = Math.floor((roomBytes / maxNumSequences - stateBytesPerSequence) / bytesPerToken);
    if (numSequences > 0) choices.push(`MAX_NUM_SEQS=${numSequences}`);
    if (numTokens > 0) choices.push(`MAX_MODEL_LEN=${numTokens}`);
  } else {
    const numBlocks = Math.floor(roomBytes / (bytesPerToken * blocks.blockSize));
    // One block holds no tokens.
    const numTokens = (numBlocks - 1) * blocks.blockSize;
    if (numTokens >= maxModelLen && wantedBlocks != null) choices.push(`NUM_GPU_BLOCKS_OVERRIDE=${numBlocks}`);
    else if (numTokens > 0) choices.push(`MAX_MODEL_LEN=${numTokens}`);
  }
  if (choices.length > 0) return `It fits with ${choices.join(" or ")}.`;
  return "Use a smaller DTYPE, a lower MAX_NUM_BATCHED_TOKENS, a higher GPU_MEMORY_UTILIZATION, or a larger GPU.";
}

function adviceFor({ memory, machineBytes, maxNumSequences, maxModelLen }: ModelInspection): string {
  const { bytesPerSequence, stateBytesPerSequence, bytesPerToken, reservedBytes } = memory.kvCache;
  const roomBytes = machineBytes - (memory.totalBytes - reservedBytes);
  if (roomBytes < bytesPerToken) {
    const { name, numBytes, remedy } = largestPart(memory);
    return `It does not fit even without the KV cache: ${name} take ${bytes(numBytes)}. ${remedy}, or use a larger machine.`;
  }
  const numSequences = Math.floor(roomBytes / bytesPerSequence);
  const bytesOfTokens = roomBytes / maxNumSequences - stateBytesPerSequence;
  const numTokens = Math.min(maxModelLen, Math.floor(bytesOfTokens / bytesPerToken));
  const choices = [
    ...(memory.totalBytes - memory.furtherCopyBytes <= machineBytes ? ["DATA_PARALLEL_SIZE=1"] : []),
    ...(numSequences > 0 ? [`MAX_NUM_SEQS=${numSequences}`] : []),
    ...(numTokens > 0 ? [`MAX_MODEL_LEN=${numTokens}`] : []),
  ];
  return `It fits with ${choices.join(" or ")}.`;
}

/** Of the parts, beside the KV cache, that a setting lowers. */
function largestPart({ weights, step, processorCacheBytes }: ModelInspection["memory"]) {
  const parts = [
    {
      name: "the weights",
      numBytes: Object.values(weights).reduce((sum, part) => sum + part, 0),
      remedy: "Use a smaller model or DTYPE",
    },
    { name: "processed images in the cache", numBytes: processorCacheBytes, remedy: "Lower MM_PROCESSOR_CACHE_GB" },
    { name: "the numbers of one step", numBytes: step.decoderBytes, remedy: "Lower MAX_NUM_BATCHED_TOKENS" },
    { name: "logits", numBytes: step.logitsBytes, remedy: "Lower MAX_NUM_SEQS" },
  ];
  return parts.reduce((largest, part) => (part.numBytes > largest.numBytes ? part : largest));
}

function formatLine(line: Line): string {
  if (typeof line === "string") return line;
  const [name, value, note = ""] = line;
  return `  ${name.padEnd(26)}  ${note === "" ? value : `${value.padEnd(12)}  ${note}`}`.trimEnd();
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
