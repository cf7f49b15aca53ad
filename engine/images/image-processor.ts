/** Encoded pictures to pixel values, on threads of its own. */
import { Piscina } from "piscina";
import { EngineError } from "../errors.ts";
import type { PixelValues } from "./pixel-values.ts";
import type { PixelReply, PixelTask } from "./pixel-worker.ts";
import { parsePreprocessorConfig } from "./preprocessor-config.ts";

export interface ImageProcessorOptions {
  readonly maxImagePixels: number;
  /** Threads decoding at once, which bounds the memory of decoded pictures too. Default 2. */
  readonly numThreads?: number;
  /** Pictures waiting for a thread; one more is refused with `queue_full`. Default 1024. */
  readonly maxNumWaiting?: number;
}

export interface ImageProcessor {
  /**
   * Pixel values of one picture. `bytes` are copied at once and stay the caller's. Throws EngineError `invalid_image`,
   * `image_too_large`, `queue_full`, `aborted` or `closed`.
   */
  process(bytes: Uint8Array, signal: AbortSignal): Promise<PixelValues>;
  /** Ends the threads; pictures still waiting or in work are refused with `closed`. Idempotent. */
  close(): Promise<void>;
}

/** Threads are started by need and end after this, as an idle replica should hold no memory of decoders. */
const IDLE_TIMEOUT_MS = 30_000;

/**
 * Starts nothing yet. Throws EngineError `unsupported_model` or `invalid_checkpoint` for a preprocessor_config.json it
 * cannot follow to the letter.
 */
export function createImageProcessor(
  preprocessorConfig: unknown,
  { maxImagePixels, numThreads = 2, maxNumWaiting = 1024 }: ImageProcessorOptions,
): ImageProcessor {
  const plan = parsePreprocessorConfig(preprocessorConfig);
  let pool: Piscina<PixelTask, PixelReply> | null = null;
  const closing = new AbortController();

  function startPool(): Piscina<PixelTask, PixelReply> {
    return new Piscina({
      filename: new URL("./pixel-worker.ts", import.meta.url).href,
      name: "processPixels",
      minThreads: 0,
      maxThreads: numThreads,
      maxQueue: maxNumWaiting,
      idleTimeout: IDLE_TIMEOUT_MS,
      // Waiting by Atomics would hold up the thread's own event loop, which libuv's finished decodes come through.
      atomics: "disabled",
    });
  }

  return {
    async process(bytes, signal) {
      if (closing.signal.aborted) throw closed();
      if (signal.aborted) throw aborted();
      pool ??= startPool();
      if (pool.queueSize >= maxNumWaiting) {
        throw new EngineError(
          "queue_full",
          `${pool.queueSize} images wait to be decoded; the limit is ${maxNumWaiting}.`,
        );
      }

      // Aborting through the pool would end a thread in the middle of native code; a task nobody waits for ends itself.
      const abandoned = new Int32Array(new SharedArrayBuffer(4));
      const given = Promise.withResolvers<never>();
      const onAbort = (): void => given.reject(aborted());
      const onClose = (): void => given.reject(closed());
      signal.addEventListener("abort", onAbort, { once: true });
      closing.signal.addEventListener("abort", onClose, { once: true });
      try {
        const copy = new Uint8Array(bytes);
        const running = pool.run({ bytes: copy, plan, maxImagePixels, abandoned }, { transferList: [copy.buffer] });
        return pixelsOf(await Promise.race([running, given.promise]));
      } finally {
        Atomics.store(abandoned, 0, 1);
        signal.removeEventListener("abort", onAbort);
        closing.signal.removeEventListener("abort", onClose);
      }
    },
    async close() {
      closing.abort();
      await pool?.close();
    },
  };
}

function pixelsOf(reply: PixelReply): PixelValues {
  switch (reply.kind) {
    case "pixels":
      return reply.result;
    case "refused":
      throw new EngineError(reply.code, reply.message);
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
