/** Entry of the threads that read documents, so that this work never blocks the HTTP thread and can be ended. */
import { move, transferableSymbol, valueSymbol } from "piscina";

import { EngineError, type EngineErrorCode } from "../contract/errors.ts";
import { loadPdfLibrary } from "./pdf-library.ts";
import type { PageSize, PdfFile, PdfLibrary } from "./pdf-library.ts";

/** A page, and the pixels that it is to have. */
export interface PageToRender {
  /** From 0. */
  readonly index: number;
  readonly width: number;
  readonly height: number;
}

export type DocumentWork =
  /** The sizes of pages `first` to `last`, counted from 0; a document ends earlier if it has fewer. */
  | { readonly kind: "sizes"; readonly first: number; readonly last: number }
  | { readonly kind: "render"; readonly pages: readonly PageToRender[] };

export interface DocumentTask {
  /** The file, owned by the task. */
  readonly bytes: Uint8Array;
  readonly work: DocumentWork;
  readonly maxMemoryBytes: number;
}

/** Errors cross threads as data, because a cloned Error loses its class and code. */
export type DocumentReply =
  | { readonly kind: "sizes"; readonly numPages: number; readonly sizes: readonly PageSize[] }
  /** RGB of each page. */
  | { readonly kind: "rendered"; readonly pixels: readonly Uint8Array<ArrayBuffer>[] }
  /** `detail` is for the log and never for the caller. */
  | {
      readonly kind: "refused";
      readonly code: EngineErrorCode;
      readonly message: string;
      readonly detail: string | null;
    };

/** A module that has grown beyond this is not kept for the next document: its memory never shrinks. */
const MAX_KEPT_BYTES = 64 * 1024 ** 2;

let library: PdfLibrary | null = null;

export async function readDocument({ bytes, work, maxMemoryBytes }: DocumentTask): Promise<DocumentReply> {
  try {
    library ??= await loadPdfLibrary(maxMemoryBytes);
    const reply = readFile(library, bytes, work);
    if (library.memoryBytes > MAX_KEPT_BYTES) library = null;
    return reply;
  } catch (error) {
    // A file that is broken may have left the module in any state.
    library = null;
    if (!(error instanceof EngineError)) throw error;
    const detail = error.cause instanceof Error ? error.cause.message : null;
    return { kind: "refused", code: error.code, message: error.message, detail };
  }
}

function readFile(pdf: PdfLibrary, bytes: Uint8Array, work: DocumentWork): DocumentReply {
  using file = pdf.open(bytes);
  if (work.kind === "sizes") return { kind: "sizes", numPages: file.numPages, sizes: sizesOf(file, work) };
  const pixels = work.pages.map(({ index, width, height }) => file.render(index, width, height));
  const reply: DocumentReply = { kind: "rendered", pixels };
  // The pool unwraps it: the pixels move to the other thread.
  return move({
    [transferableSymbol]: pixels.map(({ buffer }) => buffer),
    [valueSymbol]: reply,
  }) as unknown as DocumentReply;
}

function sizesOf(file: PdfFile, { first, last }: Extract<DocumentWork, { readonly kind: "sizes" }>): PageSize[] {
  const end = Math.min(last + 1, file.numPages);
  return Array.from({ length: Math.max(end - first, 0) }, (_, at) => file.pageSize(first + at));
}
