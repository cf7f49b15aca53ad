/** Encoded pictures to pixel values, on threads of its own. */
import { availableParallelism } from "node:os";
import type { Piscina } from "piscina";
import { EngineError, invariant } from "../contract/errors.ts";
import { moduleUrl } from "../module-url.ts";
import type { PixelValues } from "./pixel-values.ts";
import type { PixelReply, PixelTask, PixelWork, ProgramTensors } from "./pixel-worker.ts";
import { parsePreprocessorConfig, type PreprocessorPlan } from "./preprocessor-config.ts";

export interface ImageProcessorOptions {
  readonly maxImagePixels: number;
  /**
   * Threads decoding at once, which bounds the memory of decoded pictures too. Default half of the processors, 1 to 4:
   * decoding a photograph costs more than many a decode step, and the engine needs the other half.
   */
  readonly numThreads?: number;
  /** Pictures waiting for a thread; one more is refused with `queue_full`. Default 256. */
  readonly maxNumWaiting?: number;
}

export interface ImageProcessor {
  /**
   * Pixel values of one picture. `bytes` are copied at once and stay the caller's. Throws EngineError `invalid_image`,
   * `image_too_large`, `queue_full`, `aborted` or `closed`.
   *
   * @param plan Steps other than the checkpoint's, for this picture.
   */
  process(bytes: Uint8Array, signal: AbortSignal, plan?: PreprocessorPlan): Promise<PixelValues>;
  /** As `process`, by a model's own program; also throws what that throws. */
  runProgram(bytes: Uint8Array, signal: AbortSignal, program: Omit<PixelProgramWork, "kind">): Promise<ProgramTensors>;
  /** Ends the threads; pictures still waiting or in work are refused with `closed`. Idempotent. */
  close(): Promise<void>;
}

/** Threads are started by need and end after this, as an idle replica should hold no memory of decoders. */
const IDLE_TIMEOUT_MS = 30_000;

/**
 * Starts nothing yet. `preprocessorConfig` is null for a model that has a program of its own. Throws EngineError `unsupported_model` or `invalid_checkpoint` for a preprocessor_config.json it
 * cannot follow to the letter.
 */
export function createImageProcessor(
  preprocessorConfig: unknown,
  { maxImagePixels, numThreads = defaultNumThreads(), maxNumWaiting = 256 }: ImageProcessorOptions,
): ImageProcessor {
  const checkpointPlan = preprocessorConfig === null ? null : parsePreprocessorConfig(preprocessorConfig);
  const maxNumUnfinished = numThreads + maxNumWaiting;
  const closing = new AbortController();
  let numUnfinished = 0;
  let pool: Promise<PixelPool> | null = null;

  const finish = async (bytes: Uint8Array, signal: AbortSignal, work: PixelWork): Promise<FinishedReply> => {
    if (closing.signal.aborted) throw closed();
    if (signal.aborted) throw aborted();
    if (numUnfinished >= maxNumUnfinished) {
      throw new EngineError("queue_full", `${numUnfinished} images are in work; the limit is ${maxNumUnfinished}.`);
    }

    // Aborting through the pool would end a thread in the middle of native code; a task nobody waits for ends itself.
    const abandoned = new Int32Array(new SharedArrayBuffer(4));
    const given = Promise.withResolvers<never>();
    const onAbort = (): void => given.reject(aborted());
    const onClose = (): void => given.reject(closed());
    signal.addEventListener("abort", onAbort, { once: true });
    closing.signal.addEventListener("abort", onClose, { once: true });
    numUnfinished++;
    try {
      const copy = new Uint8Array(bytes);
      pool ??= startPool(numThreads, maxNumUnfinished);
      const running = pool
        .then((threads) =>
          threads.run({ bytes: copy, work, maxImagePixels, abandoned }, { transferList: [copy.buffer] }),
        )
        .finally(() => numUnfinished--);
      return finishedReply(await Promise.race([running, given.promise]));
    } catch (error) {
      if (error instanceof EngineError) throw error;
      throw new EngineError("internal", "A thread that processes images failed.", { cause: error });
    } finally {
      Atomics.store(abandoned, 0, 1);
      signal.removeEventListener("abort", onAbort);
      closing.signal.removeEventListener("abort", onClose);
    }
  };

  return {
    async process(bytes, signal, plan = checkpointPlan ?? undefined) {
      invariant(plan !== undefined, "a checkpoint that a program processes has no plan");
      const reply = await finish(bytes, signal, { kind: "plan", plan });
      invariant(reply.kind === "pixels", "a plan makes pixel values");
      return reply.result;
    },
    async runProgram(bytes, signal, program) {
      const reply = await finish(bytes, signal, { kind: "program", ...program });
      invariant(reply.kind === "tensors", "a program makes tensors");
      return reply.result;
    },
    async close() {
      closing.abort();
      await (await pool)?.close();
    },
  };
}

function defaultNumThreads(): number {
  return Math.min(Math.max(availableParallelism() >> 1, 1), 4);
}

type FinishedReply = Extract<PixelReply, { readonly kind: "pixels" | "tensors" }>;
type PixelProgramWork = Extract<PixelWork, { readonly kind: "program" }>;
type PixelPool = Piscina<PixelTask, PixelReply>;

async function startPool(numThreads: number, maxNumUnfinished: number): Promise<PixelPool> {
  // Loaded by the first picture, as the start of the service should not wait for it.
  const { Piscina } = await import("piscina");
  const pool: PixelPool = new Piscina({
    filename: moduleUrl("./pixel-worker", import.meta.url).href,
    name: "processPixels",
    minThreads: 0,
    maxThreads: numThreads,
    maxQueue: maxNumUnfinished,
    idleTimeout: IDLE_TIMEOUT_MS,
    // Waiting by Atomics would hold up the thread's own event loop, which libuv's finished decodes come through.
    atomics: "disabled",
    recordTiming: false,
  });
  // A thread that dies without a task harms nobody: the next task starts another.
  pool.on("error", () => {});
  return pool;
}

function finishedReply(reply: PixelReply): FinishedReply {
  switch (reply.kind) {
    case "pixels":
    case "tensors":
      return reply;
    case "refused":
      throw new EngineError(reply.code, reply.message, { cause: reply.detail });
    case "abandoned":
      throw aborted();
    default:
      return reply satisfies never;
  }
}

function aborted(): EngineError {
  return new EngineError("aborted", "The request was aborted while its image was processed.");
}

function closed(): EngineError {
  return new EngineError("closed", "The image processor is closed.");
}
