/** Encoded pictures to pixel values, on threads of its own, in an order that is fair to all requests. */
import { availableParallelism } from "node:os";
import type { Piscina } from "piscina";
import { EngineError, invariant } from "../contract/errors.ts";
import { moduleUrl } from "../module-url.ts";
import { decodeCostOf, defaultDecodeLimits } from "./decode-cost.ts";
import { FairQueue, type FairQueueLimits, type QueuedWork } from "./fair-queue.ts";
import type { PictureHeader } from "./picture-header.ts";
import type { PixelValues } from "./pixel-values.ts";
import type { PixelReply, PixelTask, PixelWork, ProgramTensors } from "./pixel-worker.ts";
import type { PreprocessorPlan } from "./preprocessor-config.ts";

export interface ImageProcessorOptions {
  readonly maxImagePixels: number;
  /** Most that decoding one picture may cost, see `decodeCostOf`. Default `defaultDecodeLimits`. */
  readonly maxDecodeCost?: number;
  /** Default `defaultDecodeLimits`. */
  readonly decodeTimeoutMs?: number;
  /**
   * Threads decoding at once, which bounds the memory of decoded pictures too; at most 3. Default half of the
   * processors: decoding a photograph costs more than many a decode step, and the engine needs the other half.
   */
  readonly numThreads?: number;
  /** Pictures waiting for a thread, of several requests; beyond it `queue_full`. Default 256. */
  readonly maxNumWaiting?: number;
  /** Of their encoded bytes. Default 512 MiB. */
  readonly maxWaitingBytes?: number;
}

/** For whom a picture is processed. */
export interface PictureOwner {
  readonly tenant: string;
  /** Identity of the request. */
  readonly request: object;
}

/** A picture to process. Its bytes stay the caller's, and must not change until then. */
export interface Picture {
  readonly bytes: Uint8Array;
  /** From `readHeader`; left out, the header is read first. */
  readonly header?: PictureHeader;
  /** Left out, the picture counts as a request of its own. */
  readonly owner?: PictureOwner;
}

/** Every method throws EngineError `invalid_image`, `image_too_large`, `queue_full`, `aborted` or `closed`. */
export interface ImageProcessor {
  /** Checks the limits of one picture without decoding it. */
  readHeader(picture: Picture, signal: AbortSignal): Promise<PictureHeader>;
  /** Pixel values of one picture. */
  process(picture: Picture, plan: PreprocessorPlan, signal: AbortSignal): Promise<PixelValues>;
  /** As `process`, by a model's own program; also throws what that throws. */
  runProgram(picture: Picture, program: Omit<PixelProgramWork, "kind">, signal: AbortSignal): Promise<ProgramTensors>;
  /** Ends the threads; pictures still waiting or in work are refused with `closed`. Idempotent. */
  close(): Promise<void>;
}

/** Threads are started by need and end after this, as an idle replica should hold no memory of decoders. */
const IDLE_TIMEOUT_MS = 30_000;

/**
 * The decoders run on libuv's threads, of which a process has four. One stays free: looking up names, reading files and
 * hashing need them too, and would wait for whole pictures.
 */
const MAX_NUM_THREADS = 3;

/** Reading a header costs little, and in proportion to the bytes of what is not pixels: text, profiles, markers. */
const HEADER_COST = 10_000;
const HEADER_COST_PER_BYTE = 1;

const defaultMaxNumWaiting = 256;
const defaultMaxWaitingBytes = 512 * 1024 ** 2;

interface Task extends QueuedWork {
  readonly bytes: Uint8Array;
  readonly work: PixelWork;
  /** See `PixelTask`. */
  readonly abandoned: Int32Array;
  readonly outcome: PromiseWithResolvers<FinishedReply>;
}

/** Starts nothing yet. */
export function createImageProcessor(options: ImageProcessorOptions): ImageProcessor {
  const limits = {
    maxImagePixels: options.maxImagePixels,
    maxDecodeCost: options.maxDecodeCost ?? defaultDecodeLimits.maxDecodeCost,
    decodeTimeoutMs: options.decodeTimeoutMs ?? defaultDecodeLimits.decodeTimeoutMs,
  };
  const numThreads = Math.min(options.numThreads ?? defaultNumThreads(), MAX_NUM_THREADS);
  const queueLimits = {
    maxNumWaiting: options.maxNumWaiting ?? defaultMaxNumWaiting,
    maxWaitingBytes: options.maxWaitingBytes ?? defaultMaxWaitingBytes,
  };
  const queue = new FairQueue<Task>(queueLimits);
  const closing = new AbortController();
  let numRunning = 0;
  let pool: Promise<PixelPool> | null = null;

  const startNext = (): void => {
    while (numRunning < numThreads) {
      const task = queue.take();
      if (task === null) return;
      numRunning++;
      pool ??= startPool(numThreads);
      void runTask(pool, task).finally(() => {
        numRunning--;
        // Not at once: the request whose header was read just now should be in the queue with its picture.
        setImmediate(startNext);
      });
    }
  };

  const runTask = async (threads: Promise<PixelPool>, { bytes, work, abandoned, outcome }: Task): Promise<void> => {
    try {
      const copy = new Uint8Array(bytes);
      const reply = await (
        await threads
      ).run({ bytes: copy, work, limits, abandoned }, { transferList: [copy.buffer] });
      outcome.resolve(finishedReply(reply));
    } catch (error) {
      outcome.reject(
        error instanceof EngineError
          ? error
          : new EngineError("internal", "A thread that processes images failed.", { cause: error }),
      );
    }
  };

  const finish = async (
    { bytes, owner = { tenant: "", request: {} } }: Picture,
    signal: AbortSignal,
    work: PixelWork,
    cost: number,
  ): Promise<FinishedReply> => {
    if (closing.signal.aborted) throw closed();
    if (signal.aborted) throw aborted();
    // Aborting through the pool would end a thread in the middle of native code; a task nobody waits for ends itself.
    const abandoned = new Int32Array(new SharedArrayBuffer(4));
    const outcome = Promise.withResolvers<FinishedReply>();
    const { tenant, request } = owner;
    const task: Task = { tenant, request, cost, numBytes: bytes.byteLength, bytes, work, abandoned, outcome };
    const onAbort = (): void => outcome.reject(aborted());
    const onClose = (): void => outcome.reject(closed());
    signal.addEventListener("abort", onAbort, { once: true });
    closing.signal.addEventListener("abort", onClose, { once: true });
    try {
      // A picture whose header was read has been let in before.
      if (work.kind !== "header") queue.addAdmitted(task);
      else for (const removed of queue.add(task)) removed.outcome.reject(queueFull(queue, queueLimits));
      startNext();
      return await outcome.promise;
    } finally {
      queue.remove(task);
      Atomics.store(abandoned, 0, 1);
      signal.removeEventListener("abort", onAbort);
      closing.signal.removeEventListener("abort", onClose);
    }
  };

  const readHeader = async (picture: Picture, signal: AbortSignal): Promise<PictureHeader> => {
    const cost = HEADER_COST + picture.bytes.byteLength * HEADER_COST_PER_BYTE;
    const reply = await finish(picture, signal, { kind: "header" }, cost);
    invariant(reply.kind === "header", "reading a header gives a header");
    return reply.result;
  };

  const decode = async (
    picture: Picture,
    signal: AbortSignal,
    toWork: (header: PictureHeader) => PixelWork,
  ): Promise<FinishedReply> => {
    const header = picture.header ?? (await readHeader(picture, signal));
    return finish(picture, signal, toWork(header), decodeCostOf(header));
  };

  return {
    readHeader,
    async process(picture, plan, signal) {
      const reply = await decode(picture, signal, (header) => ({ kind: "plan", header, plan }));
      invariant(reply.kind === "pixels", "a plan makes pixel values");
      return reply.result;
    },
    async runProgram(picture, program, signal) {
      const reply = await decode(picture, signal, (header) => ({ kind: "program", header, ...program }));
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
  return Math.max(availableParallelism() >> 1, 1);
}

type FinishedReply = Extract<PixelReply, { readonly kind: "header" | "pixels" | "tensors" }>;
type PixelProgramWork = Omit<Extract<PixelWork, { readonly kind: "program" }>, "header">;
type PixelPool = Piscina<PixelTask, PixelReply>;

async function startPool(numThreads: number): Promise<PixelPool> {
  // Loaded by the first picture, as the start of the service should not wait for it.
  const { Piscina } = await import("piscina");
  const pool: PixelPool = new Piscina({
    filename: moduleUrl("./pixel-worker", import.meta.url).href,
    name: "processPixels",
    minThreads: 0,
    maxThreads: numThreads,
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
    case "header":
    case "pixels":
    case "tensors":
      return reply;
    case "refused": {
      const { code, message, setting, detail } = reply;
      throw new EngineError(code, message, { cause: detail, ...(setting && { setting }) });
    }
    case "abandoned":
      throw aborted();
    default:
      return reply satisfies never;
  }
}

function aborted(): EngineError {
  return new EngineError("aborted", "The request was aborted while its image was being processed.");
}

function closed(): EngineError {
  return new EngineError("closed", "The image processor is closed.");
}

function queueFull(queue: FairQueue<Task>, { maxNumWaiting, maxWaitingBytes }: FairQueueLimits): EngineError {
  return new EngineError(
    "queue_full",
    `${queue.numWaiting} images with ${queue.waitingBytes} bytes are waiting to be processed; the limits are ${maxNumWaiting} images and ${maxWaitingBytes} bytes.`,
  );
}
