/** The dummy run of `fovea check --run`: fills an engine with the largest inputs and measures its memory. */
import { createDataUrlImageSource, createEngine, createWorstCaseRequests } from "../../engine/index.ts";
import type { Engine, GenerationRequest, ModelInspection, TaskName } from "../../engine/index.ts";
import { loadsFromS3, loadS3ClientFactory } from "../compose.ts";
import type { Config } from "../settings/config.ts";
import type { Progress } from "./progress.ts";

export interface MeasuredStage {
  readonly name: string;
  readonly computedBytes: number;
  /** Growth of this process's resident memory, or its total. */
  readonly measuredBytes: number;
}

/**
 * Throws the errors of loading and of requests. The run does not cache processed images, except in the encoder cache.
 */
export async function runWorstCase(
  config: Config,
  inspection: ModelInspection,
  onProgress: (progress: Progress) => void,
): Promise<readonly MeasuredStage[]> {
  // Copies do the same beside each other.
  const engineConfig = {
    ...config.engine,
    dataParallelSize: 1,
    caches: { ...config.engine.caches, maxMemoryBytes: 0 },
  };
  const engine = createEngine(engineConfig, {
    imageSources: [createDataUrlImageSource()],
    ...(loadsFromS3(engineConfig) && { createS3Client: await loadS3ClientFactory(config) }),
    onProgress,
  });
  try {
    await engine.ready;
    const startedBytes = process.memoryUsage.rss();
    const requests = createWorstCaseRequests(inspection, {
      ...config.engine,
      maxNumSequences: numAtFullLength(inspection),
    });
    const task = engine.modelInfo?.task ?? "generate";
    const [first] = requests;
    await runAll(engine, [{ ...first!, requestId: "first" }], { task, onProgress });
    const firstBytes = process.memoryUsage.rss();
    await runAll(engine, requests, { task, onProgress });
    return stages(inspection, requests, { startedBytes, firstBytes, filledBytes: process.memoryUsage.rss() });
  } finally {
    await engine.close();
  }
}

/** Sequences of full length that the cache holds at once. */
function numAtFullLength({ maxNumSequences, maxModelLen, memory }: ModelInspection): number {
  const { blocks } = memory.kvCache;
  if (blocks === null) return maxNumSequences;
  return Math.min(maxNumSequences, Math.max(1, Math.floor(blocks.numTokens / maxModelLen)));
}

const units: Readonly<Record<TaskName, Progress["unit"]>> = {
  generate: "tokens",
  embed: "embeddings",
  token_embed: "embeddings",
  score: "scores",
};

/** Fewer than the number that the engine rejects. */
const MAX_IMAGES_IN_WORK = 128;

/** Starts a request when an earlier one has its first token, so that few requests have images in progress. */
async function runAll(
  engine: Engine,
  requests: readonly GenerationRequest[],
  { task, onProgress }: { readonly task: TaskName; readonly onProgress: (progress: Progress) => void },
): Promise<void> {
  const stepsOf = ({ samplingParams }: GenerationRequest): number =>
    task === "generate" ? (samplingParams.maxTokens ?? 0) : 1;
  const total = requests.reduce((sum, request) => sum + stepsOf(request), 0);
  const title = `dummy run of ${requests.length}`;
  let completed = 0;
  const run = async (request: GenerationRequest, onFirstOutput: () => void): Promise<void> => {
    for await (const { tokenIds } of engine.generate({ ...request, task })) {
      onFirstOutput();
      completed += task === "generate" ? tokenIds.length : 1;
      onProgress({ task: title, completed, total, unit: units[task] });
    }
  };
  const queue = requests.values();
  const startNext = async (): Promise<void> => {
    const { value: request } = queue.next();
    if (request === undefined) return;
    const { promise: rest, resolve } = Promise.withResolvers<void>();
    let hasStarted = false;
    await run(request, () => {
      if (hasStarted) return;
      hasStarted = true;
      resolve(startNext());
    });
    await rest;
  };
  const numAtOnce = Math.max(1, Math.floor(MAX_IMAGES_IN_WORK / Math.max(1, imagesOf(requests[0]!))));
  await Promise.all(Array.from({ length: numAtOnce }, startNext));
}

function imagesOf({ prompt }: GenerationRequest): number {
  return prompt.kind === "chat" || prompt.kind === "parts" ? 0 : (prompt.images?.length ?? 0);
}

function stages(
  { memory, worstImage }: ModelInspection,
  requests: readonly GenerationRequest[],
  { startedBytes, firstBytes, filledBytes }: Readonly<Record<"startedBytes" | "firstBytes" | "filledBytes", number>>,
): readonly MeasuredStage[] {
  const { weights, kvCache, encoderCache, step, programBytes, requestBytes } = memory;
  const weightBytes = weights.embedding + weights.decoder + weights.visionEncoder;
  const stepBytes = step.decoderBytes + step.visionEncoderBytes + step.logitsBytes;
  const started = programBytes + weightBytes;
  const first = kvCache.bytesPerSequence + stepBytes;
  const numEmbeddings = requests.length * imagesOf(requests[0]!) * (worstImage?.numEmbeddings ?? 0);
  const encodedShare = Math.min(1, numEmbeddings / Math.max(1, encoderCache.maxNumEmbeddings));
  const others = kvCache.bytesPerSequence * (requests.length - 1) + encoderCache.maxBytes * encodedShare + requestBytes;
  return [
    { name: "started: program, weights", computedBytes: started, measuredBytes: startedBytes },
    { name: "one sequence, one step", computedBytes: first, measuredBytes: firstBytes - startedBytes },
    { name: "all sequences and images", computedBytes: others, measuredBytes: filledBytes - firstBytes },
    { name: "together", computedBytes: started + first + others, measuredBytes: filledBytes },
  ];
}
