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

export interface ReadPages {
  /** Of the document. */
  readonly numPages: number;
  readonly sizes: readonly PageSize[];
  /** Null unless they were asked for. */
  readonly texts: readonly string[] | null;
}

export type DocumentWork =
  /** Of pages `first` to `last`, counted from 0; a document ends earlier if it has fewer. */
  | { readonly kind: "read"; readonly first: number; readonly last: number; readonly withTexts: boolean }
  | { readonly kind: "render"; readonly pages: readonly PageToRender[] };

export interface DocumentTask {
  /** The file, owned by the task. */
  readonly bytes: Uint8Array;
  readonly work: DocumentWork;
  readonly maxMemoryBytes: number;
}

/** Errors cross threads as data, because a cloned Error loses its class and code. */
export type DocumentReply =
  | ({ readonly kind: "read" } & ReadPages)
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

/** Of all pages of a document, far beyond what models read: a small file can have a text of any length. */
const MAX_TEXT_LENGTH = 2 * 1024 ** 2;

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
  if (work.kind === "read") return readPages(file, work);
  const pixels = work.pages.map(({ index, width, height }) => file.render(index, width, height));
  const reply: DocumentReply = { kind: "rendered", pixels };
  // The pool unwraps it: the pixels move to the other thread.
  return move({
    [transferableSymbol]: pixels.map(({ buffer }) => buffer),
    [valueSymbol]: reply,
  }) as unknown as DocumentReply;
}

function readPages(
  file: PdfFile,
  { first, last, withTexts }: Extract<DocumentWork, { readonly kind: "read" }>,
): DocumentReply {
  const { numPages } = file;
  const indices = Array.from({ length: Math.max(Math.min(last + 1, numPages) - first, 0) }, (_, at) => first + at);
  const sizes = indices.map((index) => file.pageSize(index));
  return { kind: "read", numPages, sizes, texts: withTexts ? readTexts(file, indices) : null };
}

function readTexts(file: PdfFile, indices: readonly number[]): string[] {
  let length = 0;
  return indices.map((index) => {
    const text = file.text(index);
    length += text.length;
    if (length <= MAX_TEXT_LENGTH) return text;
    throw new EngineError(
      "document_too_large",
      `The text of the document has more than ${MAX_TEXT_LENGTH} characters. Choose fewer of its pages.`,
    );
  });
}
