/** Reads and decodes videos in a process of its own, in an order that is fair to all requests. */
import { defaultVideoLimits } from "../contract/default-limits.ts";
import { EngineError } from "../contract/errors.ts";
import { FairWorkers } from "../fair-queue.ts";
import type { QueuedWork } from "../fair-queue.ts";
import type { PictureOwner } from "../images/image-processor.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import { numUsableCpus } from "../runtime/usable-cores.ts";
import { DecoderProcessEnded, type DecoderProcess } from "./decoder-process.ts";
import { requireNativeLibrary } from "./native-library.ts";
import type { VideoWork, VideoWorkLimits } from "./process-messages.ts";
import { ProcessPool } from "./process-pool.ts";
import { collectFacts, collectFrames, type ResultTaker } from "./result-takers.ts";
import type { VideoFacts, VideoFrame } from "./video-facts.ts";

export type { VideoFacts, VideoFrame } from "./video-facts.ts";

/** A video. Its bytes still belong to the caller and must not change until the result. */
export interface EncodedVideo {
  readonly bytes: Uint8Array;
  /** If left out, the video counts as a separate request. */
  readonly owner?: PictureOwner;
  /** Whether the facts of the video were read for this request, so that its frames are not rejected. Default true. */
  readonly isAdmitted?: boolean;
}

export interface VideoDecoderLimits {
  /** From the start of a video's work in the process. Default `defaultVideoLimits.videoDecodeTimeoutMs`. */
  readonly videoDecodeTimeoutMs?: number;
  /** Of one frame. Default 16 Mi: 4K has 8.3 million, the widest action cameras 15.9 million. */
  readonly maxVideoPixels?: number;
  /** Of the whole video, whether or not they are decoded. Default 500,000: four hours at 30 frames per second. */
  readonly maxNumFrames?: number;
  /** Of the frames of one call. Default 1 GiB. */
  readonly maxFrameBytes?: number;
  /** Memory of one process for videos, on Linux. Default half of the memory of the machine or its container, at most 2 GiB. */
  readonly maxProcessBytes?: number;
  /** Default 1, and 2 with at least 8 processors. */
  readonly numProcesses?: number;
  /** Maximum number of waiting videos of several requests, above which `queue_full` is thrown. Default 256. */
  readonly maxNumWaiting?: number;
  /** Maximum of their encoded bytes. Default 1 GiB. */
  readonly maxWaitingBytes?: number;
}

/**
 * Every method throws EngineError `invalid_video`, `video_too_large`, `queue_full`, `aborted`, `closed`, or
 * `invalid_argument` if FFmpeg is not installed. A video whose process ends is tried once more in a new one, so that a
 * video that crashes or fills processes, or stalls one, loses only itself.
 */
export interface VideoDecoder {
  /** Demuxes only: no frame is decoded. */
  readFacts(video: EncodedVideo, signal: AbortSignal): Promise<VideoFacts>;
  /**
   * One frame for each index, in the order of `indices`. Where a broken video has no frame, the nearest one that can be
   * decoded is returned in its place.
   */
  decodeFrames(video: EncodedVideo, indices: readonly number[], signal: AbortSignal): Promise<readonly VideoFrame[]>;
  /** Ends the processes and rejects waiting and running videos with `closed`. Idempotent. */
  close(): Promise<void>;
}

/** One process decodes 720p at 20 times its speed; a second one helps only beside many cores. */
const MIN_CPUS_OF_TWO_PROCESSES = 8;

/** Frame threads hold whole frames, and four of them already make 4K faster than its playback. */
const MAX_NUM_THREADS = 4;

/** Decoding is slower than reading by about this factor. */
const DECODE_COST_PER_BYTE = 8;
/** Of starting and probing, in bytes. */
const BASE_COST = 100_000;

const DEFAULT_MAX_PIXELS = 16 * 1024 ** 2;
const DEFAULT_MAX_NUM_FRAMES = 500_000;
const DEFAULT_MAX_FRAME_BYTES = 1024 ** 3;
const MOST_PROCESS_BYTES = 2 * 1024 ** 3;
const PROCESS_SHARE = 0.5;
const DEFAULT_MAX_NUM_WAITING = 256;
const DEFAULT_MAX_WAITING_BYTES = 1024 ** 3;

function defaultProcessBytes(): number {
  return Math.min(MOST_PROCESS_BYTES, Math.floor(machineMemoryBytes() * PROCESS_SHARE));
}

interface DecodingWork extends QueuedWork {
  readonly bytes: Uint8Array;
  readonly work: VideoWork;
  readonly createTaker: () => ResultTaker<unknown>;
}

/** Starts no process yet. */
export function createVideoDecoder(options: VideoDecoderLimits = {}): VideoDecoder {
  const numCpus = numUsableCpus();
  const limits: VideoWorkLimits = {
    maxVideoPixels: options.maxVideoPixels ?? DEFAULT_MAX_PIXELS,
    maxNumFrames: options.maxNumFrames ?? DEFAULT_MAX_NUM_FRAMES,
    maxFrameBytes: options.maxFrameBytes ?? DEFAULT_MAX_FRAME_BYTES,
    numThreads: Math.min(numCpus, MAX_NUM_THREADS),
  };
  const videoDecodeTimeoutMs = options.videoDecodeTimeoutMs ?? defaultVideoLimits.videoDecodeTimeoutMs;
  const numProcesses = options.numProcesses ?? (numCpus < MIN_CPUS_OF_TWO_PROCESSES ? 1 : 2);
  const processes = new ProcessPool(options.maxProcessBytes ?? defaultProcessBytes());

  /**
   * Tries again in a new process where one ended: once if it had read the video, which may be innocent, and once if it
   * had not, because an idle process may end just before a video reaches it. Throws like `workOn`.
   */
  const workUntilDone = async (decoding: DecodingWork, ended: AbortSignal): Promise<unknown> => {
    const ends = new Set<boolean>();
    for (;;) {
      try {
        return await workOn(decoding, ends.size === 0 ? processes.take() : processes.start(), ended);
      } catch (error) {
        if (!(error instanceof DecoderProcessEnded) || ended.aborted || ends.has(error.hadStarted)) throw error;
        ends.add(error.hadStarted);
      }
    }
  };

  /** Throws DecoderProcessEnded, or the EngineError with which the process refused the video. */
  const workOn = async (
    { work, bytes, createTaker }: DecodingWork,
    process: DecoderProcess,
    ended: AbortSignal,
  ): Promise<unknown> => {
    const taker = createTaker();
    // Decoders cannot be asked to stop.
    const onEnd = (): void => process.end();
    let isTooSlow = false;
    const timer = setTimeout(() => {
      isTooSlow = true;
      process.end();
    }, videoDecodeTimeoutMs);
    ended.addEventListener("abort", onEnd, { once: true });
    try {
      await process.work(work, bytes, taker);
      return taker.result();
    } catch (error) {
      if (isTooSlow) throw tooSlow(videoDecodeTimeoutMs);
      // A broken video may have left the process short of memory, or worse: the next one gets a new process.
      if (error instanceof EngineError && error.code === "invalid_video") process.end();
      throw error;
    } finally {
      clearTimeout(timer);
      ended.removeEventListener("abort", onEnd);
      processes.giveBack(process);
    }
  };

  const workers = new FairWorkers<DecodingWork, unknown>({
    maxNumRunning: numProcesses,
    limits: {
      maxNumWaiting: options.maxNumWaiting ?? DEFAULT_MAX_NUM_WAITING,
      maxWaitingBytes: options.maxWaitingBytes ?? DEFAULT_MAX_WAITING_BYTES,
    },
    async run(decoding, ended) {
      try {
        return await workUntilDone(decoding, ended);
      } catch (error) {
        throw error instanceof DecoderProcessEnded ? endedError(error) : error;
      }
    },
    errors: { aborted, closed },
    words: { plural: "videos", done: "decoded" },
  });

  const finish = async <Result>(
    { bytes, owner = { tenant: "", request: {} }, isAdmitted = true }: EncodedVideo,
    signal: AbortSignal,
    { indices, createTaker }: Pick<VideoWork, "indices"> & { readonly createTaker: () => ResultTaker<Result> },
  ): Promise<Result> => {
    requireNativeLibrary();
    const numBytes = bytes.byteLength;
    const cost = BASE_COST + numBytes * (indices === null ? 1 : DECODE_COST_PER_BYTE);
    const decoding = { ...owner, cost, numBytes, bytes, work: { indices, numBytes, limits }, createTaker };
    // A video whose facts were read has already been admitted.
    return (await workers.do(decoding, signal, indices !== null && isAdmitted)) as Result;
  };

  return {
    readFacts: (video, signal) => finish(video, signal, { indices: null, createTaker: () => collectFacts(limits) }),
    async decodeFrames(video, indices, signal) {
      if (indices.length === 0) return [];
      const distinct = [...new Set(indices)].toSorted((first, second) => first - second);
      const createTaker = (): ResultTaker<readonly VideoFrame[]> => collectFrames(indices, limits);
      return finish(video, signal, { indices: distinct, createTaker });
    },
    async close() {
      workers.close();
      await processes.end();
    },
  };
}

function endedError(cause: DecoderProcessEnded): EngineError {
  return cause.hadStarted
    ? new EngineError(
        "invalid_video",
        "The process that decodes videos ended twice while it worked on this one. The video is broken, or needs more memory than there is for it.",
        { cause },
      )
    : new EngineError("internal", "The process that decodes videos does not start.", { cause });
}

function tooSlow(timeoutMs: number): EngineError {
  return new EngineError("video_too_large", `Decoding the video takes longer than ${timeoutMs} ms.`, {
    setting: "videoDecodeTimeoutMs",
  });
}

function aborted(): EngineError {
  return new EngineError("aborted", "The request was aborted while its video was being decoded.");
}

function closed(): EngineError {
  return new EngineError("closed", "The video decoder is closed.");
}
