/** Reads and renders documents in threads of its own, in an order that is fair to all requests. */
import type { Piscina } from "piscina";

import { defaultDocumentLimits } from "../contract/default-limits.ts";
import { EngineError, invariant } from "../contract/errors.ts";
import { FairWorkers } from "../fair-queue.ts";
import type { QueuedWork } from "../fair-queue.ts";
import type { PictureOwner } from "../images/image-processor.ts";
import { moduleUrl } from "../module-url.ts";
import { RunningTimer } from "../running-timer.ts";
import { machineMemoryBytes } from "../runtime/machine-memory.ts";
import type { DocumentReply, DocumentTask, DocumentWork, PageToRender, ReadPages } from "./document-worker.ts";

export type { PageToRender } from "./document-worker.ts";

/** A PDF file. Its bytes still belong to the caller and must not change until the result. */
export interface EncodedDocument {
  readonly bytes: Uint8Array;
  /** If left out, the document counts as a separate request. */
  readonly owner?: PictureOwner;
}

/** Pages, counted from 0. */
export interface PageRange {
  readonly first: number;
  readonly last: number;
}

export interface DocumentReaderOptions {
  /** For each call, from the start of its work. Default `defaultDocumentLimits.renderTimeoutMs`. */
  readonly renderTimeoutMs?: number;
  /** Of the reader, beside the rendered pages. Default an eighth of the machine's or container's memory, at most 512 MiB. */
  readonly maxMemoryBytes?: number;
  /** Maximum number of waiting documents of several requests, above which `queue_full` is thrown. Default 256. */
  readonly maxNumWaiting?: number;
  /** Maximum of their bytes. Default 512 MiB. */
  readonly maxWaitingBytes?: number;
}

/** Every method throws EngineError `invalid_document`, `document_too_large`, `queue_full`, `aborted` or `closed`. */
export interface DocumentReader {
  /** The number of all pages, and sizes and texts of those of the range that there are. */
  readPages(
    document: EncodedDocument,
    range: PageRange & { readonly withTexts: boolean },
    signal: AbortSignal,
  ): Promise<ReadPages>;
  /** RGB of each page, row-major [height, width, 3]. */
  render(
    document: EncodedDocument,
    pages: readonly PageToRender[],
    signal: AbortSignal,
  ): Promise<readonly Uint8Array[]>;
  /** Ends the thread and rejects waiting and running documents with `closed`. Idempotent. */
  close(): Promise<void>;
}

/** Rendering takes a whole core, which decoding needs as well. */
const NUM_THREADS = 1;
/** The thread starts on demand and ends after this time. */
const IDLE_TIMEOUT_MS = 30_000;

/** Of opening a file, in pixels. */
const OPENING_COST = 1_000_000;

const MOST_MEMORY_BYTES = 512 * 1024 ** 2;
const MEMORY_SHARE = 1 / 8;
const DEFAULT_MAX_NUM_WAITING = 256;
const DEFAULT_MAX_WAITING_BYTES = 512 * 1024 ** 2;

interface ReadingWork extends QueuedWork {
  readonly bytes: Uint8Array;
  readonly work: DocumentWork;
}

type ReaderPool = Piscina<DocumentTask, DocumentReply>;

/** Starts no thread yet. */
export function createDocumentReader(options: DocumentReaderOptions = {}): DocumentReader {
  const { renderTimeoutMs = defaultDocumentLimits.renderTimeoutMs } = options;
  const maxMemoryBytes =
    options.maxMemoryBytes ?? Math.min(MOST_MEMORY_BYTES, Math.floor(machineMemoryBytes() * MEMORY_SHARE));
  let pool: Promise<ReaderPool> | null = null;

  const workers = new FairWorkers<ReadingWork, DocumentReply>({
    maxNumRunning: NUM_THREADS,
    limits: {
      maxNumWaiting: options.maxNumWaiting ?? DEFAULT_MAX_NUM_WAITING,
      maxWaitingBytes: options.maxWaitingBytes ?? DEFAULT_MAX_WAITING_BYTES,
    },
    async run({ bytes, work }, ended) {
      pool ??= startPool();
      const threads = await pool;
      const timeout = new AbortController();
      using _ = new RunningTimer(renderTimeoutMs, () => timeout.abort());
      const copy = new Uint8Array(bytes);
      try {
        // An abort ends the thread, whatever it does; the next document starts another.
        const signal = AbortSignal.any([ended, timeout.signal]);
        return await threads.run({ bytes: copy, work, maxMemoryBytes }, { signal, transferList: [copy.buffer] });
      } catch (error) {
        if (timeout.signal.aborted) throw tooSlow(renderTimeoutMs);
        throw new EngineError("internal", "A thread that reads documents failed.", { cause: error });
      }
    },
    errors: { aborted, closed },
    words: { plural: "documents", done: "read" },
  });

  const read = async (
    { bytes, owner = { tenant: "", request: {} } }: EncodedDocument,
    signal: AbortSignal,
    work: DocumentWork,
  ): Promise<DocumentReply> => {
    const numPixels = work.kind === "read" ? 0 : work.pages.reduce((sum, { width, height }) => sum + width * height, 0);
    const cost = OPENING_COST + bytes.byteLength + numPixels;
    const reading = { ...owner, cost, numBytes: bytes.byteLength, bytes, work };
    // A document whose pages were read has already been admitted.
    const reply = await workers.do(reading, signal, work.kind === "render");
    if (reply.kind === "refused") throw new EngineError(reply.code, reply.message, { cause: reply.detail });
    return reply;
  };

  return {
    async readPages(document, range, signal) {
      const reply = await read(document, signal, { kind: "read", ...range });
      invariant(reply.kind === "read", "reading pages gives their sizes");
      return reply;
    },
    async render(document, pages, signal) {
      const reply = await read(document, signal, { kind: "render", pages });
      invariant(reply.kind === "rendered", "rendering gives pixels");
      return reply.pixels;
    },
    async close() {
      workers.close();
      await (await pool)?.close({ force: true });
    },
  };
}

async function startPool(): Promise<ReaderPool> {
  // Imported by the first document, to keep the start of the service fast.
  const { Piscina } = await import("piscina");
  const pool: ReaderPool = new Piscina({
    filename: moduleUrl("./document-worker", import.meta.url).href,
    name: "readDocument",
    minThreads: 0,
    maxThreads: NUM_THREADS,
    idleTimeout: IDLE_TIMEOUT_MS,
    recordTiming: false,
  });
  // A thread that dies without a task is harmless: the next task starts another.
  pool.on("error", () => {});
  return pool;
}

function tooSlow(timeoutMs: number): EngineError {
  return new EngineError("document_too_large", `Reading the document takes longer than ${timeoutMs} ms.`, {
    setting: "documentRenderTimeoutMs",
  });
}

function aborted(): EngineError {
  return new EngineError("aborted", "The request was aborted while its document was being read.");
}

function closed(): EngineError {
  return new EngineError("closed", "The document reader is closed.");
}
