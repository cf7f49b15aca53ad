/** Turns encoded pictures into pixel values on its own threads, in an order that is fair to all requests. */
import type { Piscina } from "piscina";

import { defaultDecodeLimits } from "../contract/default-limits.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import { FairWorkers } from "../fair-queue.ts";
import type { QueuedWork } from "../fair-queue.ts";
import { moduleUrl } from "../module-url.ts";
import { numUsableCpus } from "../runtime/usable-cores.ts";
import { decodeCostOf } from "./decode-cost.ts";
import type { DecodedImage } from "./decode-image.ts";
import type { PictureHeader } from "./picture-header.ts";
import { PixelFlags } from "./pixel-flags.ts";
import type { PixelValues } from "./pixel-values.ts";
import type { PixelReply, PixelTask, PixelWork, ProgramTensors } from "./pixel-worker.ts";
import type { PreprocessorPlan } from "./preprocessor-config.ts";

export interface ImageProcessorOptions {
  readonly maxImagePixels: number;
  /** Maximum cost of decoding one picture, see `decodeCostOf`. Default `defaultDecodeLimits`. */
  readonly maxDecodeCost?: number;
  /** For decoding, and for a pixel program. Default `defaultDecodeLimits`. */
  readonly decodeTimeoutMs?: number;
  /**
   * Threads that decode at once, which also bounds the memory of decoded pictures; at most 3. Default: half of the
   * processors, because decoding a photograph costs more than many decode steps, and the engine needs the other half.
   */
  readonly numThreads?: number;
  /** Maximum number of waiting pictures of several requests, above which `queue_full` is thrown. Default 256. */
  readonly maxNumWaiting?: number;
  /** Maximum of their encoded bytes. Default 512 MiB. */
  readonly maxWaitingBytes?: number;
}

/** The tenant and request of a picture. */
export interface PictureOwner {
  readonly tenant: string;
  /** Identity of the request. */
  readonly request: object;
  /** Lower values go before others of the same tenant. Default 0. */
  readonly priority?: number;
}

/** A picture to process. Its bytes still belong to the caller and must not change until then. */
export interface Picture {
  readonly bytes: Uint8Array;
  /** From `readHeader`. If left out, the header is read first. */
  readonly header?: PictureHeader;
  /** If left out, the picture counts as a separate request. */
  readonly owner?: PictureOwner;
}

/** Every method throws EngineError `invalid_image`, `image_too_large`, `queue_full`, `aborted` or `closed`. */
export interface ImageProcessor {
  /** Checks the limits of a picture without decoding it. */
  readHeader(picture: Picture, signal: AbortSignal): Promise<PictureHeader>;
  /** The picture itself. */
  decode(picture: Picture, signal: AbortSignal): Promise<DecodedImage>;
  /** Pixel values of one picture. */
  process(picture: Picture, plan: PreprocessorPlan, signal: AbortSignal): Promise<PixelValues>;
  /** Like `process`, with a model's own program; also throws the program's errors, and `internal` if it does not return. */
  runProgram(picture: Picture, program: Omit<PixelProgramWork, "kind">, signal: AbortSignal): Promise<ProgramTensors>;
  /** Ends the threads and rejects waiting and running pictures with `closed`. Idempotent. */
  close(): Promise<void>;
}

/** Threads start on demand and end after this time, so that an idle replica holds no decoder memory. */
const IDLE_TIMEOUT_MS = 30_000;

/**
 * Decoders run on libuv's threads, of which a process has four. One stays free, because name lookups, file reads and
 * hashing also need them and would otherwise wait for whole pictures.
 */
const MAX_NUM_THREADS = 3;

/** Reading a header costs little, in proportion to the bytes that are not pixels: text, profiles, markers. */
const HEADER_COST = 10_000;
const HEADER_COST_PER_BYTE = 1;

const DEFAULT_MAX_NUM_WAITING = 256;
const DEFAULT_MAX_WAITING_BYTES = 512 * 1024 ** 2;

interface PictureWork extends QueuedWork {
  readonly bytes: Uint8Array;
  readonly work: PixelWork;
}

/** Starts no threads yet. */
export function createImageProcessor(options: ImageProcessorOptions): ImageProcessor {
  const limits = {
    maxImagePixels: options.maxImagePixels,
    maxDecodeCost: options.maxDecodeCost ?? defaultDecodeLimits.maxDecodeCost,
    decodeTimeoutMs: options.decodeTimeoutMs ?? defaultDecodeLimits.decodeTimeoutMs,
  };
  const numThreads = Math.min(options.numThreads ?? defaultNumThreads(), MAX_NUM_THREADS);
  const programs = new Set<ProgramWatch>();
  let pool: Promise<PixelPool> | null = null;

  const workers = new FairWorkers<PictureWork, FinishedReply>({
    maxNumRunning: numThreads,
    limits: {
      maxNumWaiting: options.maxNumWaiting ?? DEFAULT_MAX_NUM_WAITING,
      maxWaitingBytes: options.maxWaitingBytes ?? DEFAULT_MAX_WAITING_BYTES,
    },
    async run({ bytes, work }, ended) {
      // Aborting through the pool would end a thread in native code. An abandoned task ends by itself.
      const flags = new PixelFlags();
      ended.addEventListener("abort", () => flags.abandon(), { once: true });
      const program = work.kind === "program" ? new ProgramWatch(flags, limits.decodeTimeoutMs) : null;
      if (program !== null) programs.add(program);
      pool ??= startPool(numThreads);
      try {
        const copy = new Uint8Array(bytes);
        const threads = await pool;
        const task = { bytes: copy, work, limits, flags: flags.shared };
        const signal = program?.ended ?? null;
        return finishedReply(await threads.run(task, { transferList: [copy.buffer], signal }));
      } catch (error) {
        if (error instanceof EngineError) throw error;
        if (work.kind === "program" && program?.ended.aborted === true)
          throw tooLong(work.module, limits.decodeTimeoutMs);
        throw new EngineError("internal", "A thread that processes images failed.", { cause: error });
      } finally {
        if (program !== null) programs.delete(program);
        program?.[Symbol.dispose]();
      }
    },
    errors: { aborted, closed },
    words: { plural: "images", done: "processed" },
  });

  const finish = async (
    { bytes, owner = { tenant: "", request: {} } }: Picture,
    signal: AbortSignal,
    work: PixelWork,
    cost: number,
  ): Promise<FinishedReply> =>
    // A picture whose header was read has already been admitted.
    workers.do({ ...owner, cost, numBytes: bytes.byteLength, bytes, work }, signal, work.kind !== "header");

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
    async decode(picture, signal) {
      const reply = await decode(picture, signal, (header) => ({ kind: "decode", header }));
      invariant(reply.kind === "decoded", "decoding gives a picture");
      return reply.result;
    },
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
      workers.close();
      for (const program of programs) program.end();
      await (await pool)?.close();
    },
  };
}

function defaultNumThreads(): number {
  return Math.max(numUsableCpus() >> 1, 1);
}

type FinishedReply = Extract<PixelReply, { readonly kind: "header" | "decoded" | "pixels" | "tensors" }>;
type PixelProgramWork = Omit<Extract<PixelWork, { readonly kind: "program" }>, "header">;
type PixelPool = Piscina<PixelTask, PixelReply>;

async function startPool(numThreads: number): Promise<PixelPool> {
  // Imported by the first picture, to keep the start of the service fast.
  const { Piscina } = await import("piscina");
  const pool: PixelPool = new Piscina({
    filename: moduleUrl("./pixel-worker", import.meta.url).href,
    name: "processPixels",
    minThreads: 0,
    maxThreads: numThreads,
    idleTimeout: IDLE_TIMEOUT_MS,
    // Waiting with Atomics would block the thread's event loop, which delivers libuv's finished decodes.
    atomics: "disabled",
    recordTiming: false,
  });
  // A thread that dies without a task is harmless: the next task starts another.
  pool.on("error", () => {});
  return pool;
}

function finishedReply(reply: PixelReply): FinishedReply {
  switch (reply.kind) {
    case "header":
    case "decoded":
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

/** Of the limit of a program. */
const NUM_LOOKS = 8;

/** Ends the thread of a pixel program that does not return: it is JavaScript, unlike a decoder. Mutable. */
class ProgramWatch implements Disposable {
  readonly #flags: PixelFlags;
  readonly #ending = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #numLooks = 0;

  /** Looks are counted, not time: a process that was paused gives its programs their whole time. */
  constructor(flags: PixelFlags, limitMs: number) {
    this.#flags = flags;
    this.#timer = setInterval(() => {
      if (flags.isInProgram && ++this.#numLooks > NUM_LOOKS) this.end();
    }, limitMs / NUM_LOOKS);
  }

  /** Aborted when the program has to end. */
  get ended(): AbortSignal {
    return this.#ending.signal;
  }

  /** Has no effect while the picture is decoded. */
  end(): void {
    if (this.#flags.isInProgram) this.#ending.abort();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}

function tooLong(module: string, limitMs: number): EngineError {
  return new EngineError("internal", `The pixel program ${module} did not return within ${limitMs} ms.`, {
    setting: "decodeTimeoutMs",
  });
}

function aborted(): EngineError {
  return new EngineError("aborted", "The request was aborted while its image was being processed.");
}

function closed(): EngineError {
  return new EngineError("closed", "The image processor is closed.");
}
