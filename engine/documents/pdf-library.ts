/** PDFium, Chrome's reader of PDF files, as WebAssembly: a file cannot reach beyond the memory of its module. */
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { init } from "@embedpdf/pdfium";
import type { Methods } from "@embedpdf/pdfium";

import { EngineError } from "../contract/errors.ts";

/** In points, 72 to an inch, as the page is shown. */
export interface PageSize {
  readonly width: number;
  readonly height: number;
}

export interface PdfLibrary {
  /** Bytes that the module has allocated. They never become fewer. */
  readonly memoryBytes: number;
  /** @throws EngineError `invalid_document`, or `document_too_large` for want of memory. */
  open(bytes: Uint8Array): PdfFile;
}

/** Methods throw EngineError `invalid_document`, or `document_too_large` for want of memory. */
export interface PdfFile extends Disposable {
  readonly numPages: number;
  /** @param index From 0. */
  pageSize(index: number): PageSize;
  /**
   * The page with its annotations and filled form on white, as large as asked: RGB, row-major [height, width, 3].
   *
   * @param index From 0.
   */
  render(index: number, width: number, height: number): Uint8Array<ArrayBuffer>;
  /**
   * The text of the page from top to bottom, with "\n" between lines. Invisible text is included, as programs for
   * scans write it; values of form fields are not. "" for a page without text.
   *
   * @param index From 0.
   */
  text(index: number): string;
}

/** What is used of the module. Its own types name those of Emscripten, which browsers have. */
type Pdfium = Methods & {
  readonly pdfium: {
    readonly HEAPU8: Uint8Array<ArrayBuffer>;
    readonly wasmExports: {
      malloc(this: void, numBytes: number): number;
      free(this: void, address: number): void;
    };
  };
};

type Imports = Readonly<Record<string, Record<string, unknown>>>;

interface ModuleSettings {
  readonly print: (text: string) => void;
  readonly printErr: (text: string) => void;
  readonly instantiateWasm: (imports: Imports, receive: (instance: WebAssembly.Instance) => void) => object;
}

/** Of FPDF_GetLastError. */
const PASSWORD_ERROR = 4;
const SECURITY_ERROR = 5;
/** Of FPDFBitmap_CreateEx: blue, green and red, or in reverse order with the flag. */
const BITMAP_BGR = 2;
const FLAG_ANNOTATIONS = 0x01;
const FLAG_REVERSED_BYTES = 0x10;
const WHITE = 0xffffffff;

/**
 * Loads a module of its own. One that has thrown must not be used again.
 *
 * @param maxMemoryBytes Of the module, its code not counted.
 */
export async function loadPdfLibrary(maxMemoryBytes: number): Promise<PdfLibrary> {
  const binary = readFileSync(createRequire(import.meta.url).resolve("@embedpdf/pdfium/pdfium.wasm"));
  const memory = { isExhausted: false };
  const nothing = (): void => {};
  const settings: ModuleSettings = {
    print: nothing,
    printErr: nothing,
    instantiateWasm(imports, receive) {
      limitMemory(imports, maxMemoryBytes, memory);
      const instance = new WebAssembly.Instance(new WebAssembly.Module(binary), imports);
      receive(instance);
      return instance.exports as object;
    },
  };
  const library = (await init(settings)) as unknown as Pdfium;
  library.PDFiumExt_Init();
  return {
    get memoryBytes() {
      return library.pdfium.HEAPU8.byteLength;
    },
    open: (bytes) => telling(memory, maxMemoryBytes, () => openFile(library, bytes, memory, maxMemoryBytes)),
  };
}

interface MemoryState {
  isExhausted: boolean;
}

/** Emscripten asks this import for more memory, and takes 0 for a refusal. */
function limitMemory(imports: Imports, maxBytes: number, state: MemoryState): void {
  const functions = imports["env"]!;
  const grow = functions["emscripten_resize_heap"] as (numBytes: number) => number | boolean;
  functions["emscripten_resize_heap"] = (numBytes: number): number => {
    const hasGrown = numBytes >>> 0 <= maxBytes && Boolean(grow(numBytes));
    state.isExhausted ||= !hasGrown;
    return hasGrown ? 1 : 0;
  };
}

/** Runs something that calls the module. Whatever the module throws means a file that it cannot read. */
function telling<Result>(memory: MemoryState, maxMemoryBytes: number, run: () => Result): Result {
  let cause: unknown;
  try {
    const result = run();
    if (!memory.isExhausted) return result;
  } catch (error) {
    if (!memory.isExhausted && error instanceof EngineError) throw error;
    cause = error;
  }
  if (!memory.isExhausted)
    throw new EngineError("invalid_document", "The document cannot be read as a PDF.", { cause });
  throw new EngineError(
    "document_too_large",
    `The document needs more than ${maxMemoryBytes} bytes of memory to be read.`,
    { cause },
  );
}

function openFile(library: Pdfium, bytes: Uint8Array, memory: MemoryState, maxMemoryBytes: number): PdfFile {
  const { pdfium } = library;
  const { malloc, free } = pdfium.wasmExports;
  const file = allocate(bytes.byteLength);
  pdfium.HEAPU8.set(bytes, file);
  const document = library.FPDF_LoadMemDocument(file, bytes.byteLength, "");
  if (document === 0) {
    const error = library.FPDF_GetLastError();
    free(file);
    throw unreadable(error);
  }
  // Draws the values of form fields. Scripts of the file would have to be started.
  const formInfo = library.PDFiumExt_OpenFormFillInfo();
  const form = library.PDFiumExt_InitFormFillEnvironment(document, formInfo);
  const protect = <Result>(run: () => Result): Result => telling(memory, maxMemoryBytes, run);
  return {
    numPages: library.FPDF_GetPageCount(document),
    pageSize: (index) =>
      protect(() => {
        const size = allocate(2 * Float32Array.BYTES_PER_ELEMENT);
        const isRead = library.FPDF_GetPageSizeByIndexF(document, index, size);
        const [width, height] = new Float32Array(pdfium.HEAPU8.buffer.slice(size, size + 8));
        free(size);
        if (!isRead || !isSize(width) || !isSize(height)) throw brokenPage(index);
        return { width, height };
      }),
    render: (index, width, height) =>
      protect(() => {
        const page = library.FPDF_LoadPage(document, index);
        if (page === 0) throw brokenPage(index);
        library.FORM_OnAfterLoadPage(page, form);
        const bitmap = library.FPDFBitmap_CreateEx(width, height, BITMAP_BGR, 0, 0);
        try {
          if (bitmap === 0) throw brokenPage(index);
          library.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, WHITE);
          const flags = FLAG_ANNOTATIONS | FLAG_REVERSED_BYTES;
          library.FPDF_RenderPageBitmap(bitmap, page, 0, 0, width, height, 0, flags);
          library.FPDF_FFLDraw(form, bitmap, page, 0, 0, width, height, 0, flags);
          const stride = library.FPDFBitmap_GetStride(bitmap);
          const start = library.FPDFBitmap_GetBuffer(bitmap);
          return rowsOf(pdfium.HEAPU8, { start, stride }, width * 3, height);
        } finally {
          if (bitmap !== 0) library.FPDFBitmap_Destroy(bitmap);
          library.FORM_OnBeforeClosePage(page, form);
          library.FPDF_ClosePage(page);
        }
      }),
    text: (index) =>
      protect(() => {
        const page = library.FPDF_LoadPage(document, index);
        const characters = page === 0 ? 0 : library.FPDFText_LoadPage(page);
        try {
          const numCharacters = characters === 0 ? -1 : library.FPDFText_CountChars(characters);
          if (numCharacters < 0) throw brokenPage(index);
          // Two units for each, and a zero at the end.
          const start = allocate((numCharacters * 2 + 1) * Uint16Array.BYTES_PER_ELEMENT);
          const numUnits = library.FPDFText_GetText(characters, 0, numCharacters, start);
          const units = pdfium.HEAPU8.subarray(
            start,
            start + Math.max(numUnits - 1, 0) * Uint16Array.BYTES_PER_ELEMENT,
          );
          const text = utf16.decode(units);
          free(start);
          return tidied(text);
        } finally {
          if (characters !== 0) library.FPDFText_ClosePage(characters);
          if (page !== 0) library.FPDF_ClosePage(page);
        }
      }),
    [Symbol.dispose]() {
      library.PDFiumExt_ExitFormFillEnvironment(form);
      library.PDFiumExt_CloseFormFillInfo(formInfo);
      library.FPDF_CloseDocument(document);
      free(file);
    },
  };

  function allocate(numBytes: number): number {
    const address = malloc(numBytes);
    if (address === 0) throw new Error(`${numBytes} bytes cannot be allocated`);
    return address;
  }
}

const utf16 = new TextDecoder("utf-16le");

/** PDFium writes U+0002 or U+FFFE for a hyphen that ends a line within a word, and nulls for glyphs that it does not know. */
function tidied(text: string): string {
  return text
    .replaceAll("\u0002", "\ufffe")
    .replaceAll(/\ufffe(\r?\n)?/g, "")
    .replaceAll(/\r\n?/g, "\n")
    .replaceAll("\0", "")
    .trimEnd();
}

function isSize(value: number | undefined): value is number {
  return value !== undefined && Number.isFinite(value) && value > 0;
}

/** Copies rows, which are padded in the module's memory. */
function rowsOf(
  memory: Uint8Array,
  { start, stride }: { readonly start: number; readonly stride: number },
  rowBytes: number,
  numRows: number,
): Uint8Array<ArrayBuffer> {
  const rows = new Uint8Array(rowBytes * numRows);
  for (let row = 0; row < numRows; row++) {
    rows.set(memory.subarray(start + row * stride, start + row * stride + rowBytes), row * rowBytes);
  }
  return rows;
}

function unreadable(error: number): EngineError {
  const isLocked = error === PASSWORD_ERROR || error === SECURITY_ERROR;
  return new EngineError(
    "invalid_document",
    isLocked
      ? "The document is protected by a password. Send it without one."
      : "The document cannot be read as a PDF. Send other files as text or as pictures.",
  );
}

function brokenPage(index: number): EngineError {
  return new EngineError("invalid_document", `Page ${index + 1} of the document is broken.`);
}
