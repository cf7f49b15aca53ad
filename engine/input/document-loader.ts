/** Fetches the documents of a request, and makes pictures and texts of the pages that its prompt shows. */
import { allOrNone } from "../concurrent-work.ts";
import { documentContents } from "../contract/config.ts";
import type { DocumentContent, DocumentLimits, ImageLimits } from "../contract/config.ts";
import { dotsPerInchRange } from "../contract/default-limits.ts";
import { aboutParameter, EngineError } from "../contract/errors.ts";
import type { DocumentPages, DocumentPart, PromptRequest } from "../contract/generation-request.ts";
import { observeStage } from "../contract/request-stage.ts";
import type { DocumentReader, PageRange, PageToRender } from "../documents/document-reader.ts";
import type { PageSize } from "../documents/pdf-library.ts";
import { shown } from "../excerpt.ts";
import { fetchImage } from "../images/fetch-image.ts";
import type { HeldBytes } from "../images/fetched-bytes.ts";
import type { ImageSource } from "../images/image-source.ts";
import { contentHashOf } from "../multimodal/hasher.ts";
import type { ShownVideo } from "../multimodal/multimodal-processor.ts";
import { namingMedia } from "./naming-media.ts";
import type { FramesPart } from "./video-loader.ts";

/** At least one of both. */
export interface OpenedPage {
  readonly image: FramesPart | null;
  /** Begins with the page's number, and ends with an empty line. */
  readonly text: string | null;
}

/** The pages of each document that are shown, in order. */
export type OpenedDocuments = ReadonlyMap<DocumentPart, readonly OpenedPage[]>;

export interface DocumentLoaderOptions {
  readonly reader: DocumentReader;
  readonly sources: readonly ImageSource[];
  readonly limits: DocumentLimits;
  readonly imageLimits: Pick<ImageLimits, "maxImagePixels" | "fetchTimeoutMs">;
}

type DocumentRequest = Pick<PromptRequest, "tenant" | "priority" | "documentPages" | "onStage">;

const POINTS_PER_INCH = 72;

export class DocumentLoader {
  readonly #options: DocumentLoaderOptions;

  constructor(options: DocumentLoaderOptions) {
    this.#options = options;
  }

  /** Whether pages of the request's documents are images. */
  showsImages(request: Pick<DocumentRequest, "documentPages">): boolean {
    return this.#contentOf(request) !== "text";
  }

  #contentOf({ documentPages }: Pick<DocumentRequest, "documentPages">): DocumentContent {
    return documentPages?.content ?? this.#options.limits.content;
  }

  /**
   * Reads the sizes and texts of pages, and renders nothing. The first failure cancels the other documents, which have ended when
   * this rejects: with an error of a document (`parameter` is `prompt.documents[index]`), `invalid_argument` for pages
   * that there are not, `queue_full` or `aborted`.
   *
   * @param maxImages Of a document. One with more is returned with its first `maxImages + 1`.
   * @param held Counts the bytes of the files.
   */
  async open(
    parts: readonly DocumentPart[],
    request: DocumentRequest,
    maxImages: number,
    held: HeldBytes,
    signal: AbortSignal,
  ): Promise<OpenedDocuments> {
    checkPages(request.documentPages);
    const range = rangeOf(request.documentPages, this.showsImages(request) ? maxImages : Infinity);
    const opened = await allOrNone(
      [...new Set(parts)],
      async (part, either) => {
        const parameter = `prompt.documents[${parts.indexOf(part)}]`;
        try {
          return [part, await this.#open(part, parameter, { request, range, held, signal: either })] as const;
        } catch (error) {
          throw error instanceof EngineError && error.parameter === null ? aboutParameter(error, parameter) : error;
        }
      },
      AbortSignal.any([signal, held.refused]),
    );
    return new Map(opened);
  }

  async #open(
    { reference }: DocumentPart,
    parameter: string,
    {
      request,
      range,
      held,
      signal,
    }: {
      readonly request: DocumentRequest;
      readonly range: PageRange;
      readonly held: HeldBytes;
      readonly signal: AbortSignal;
    },
  ): Promise<readonly OpenedPage[]> {
    const { reader, sources, limits, imageLimits } = this.#options;
    const content = this.#contentOf(request);
    const { tenant = "", priority = 0, documentPages = {} } = request;
    const context = {
      signal,
      limits: { maxImageBytes: limits.maxDocumentBytes, fetchTimeoutMs: imageLimits.fetchTimeoutMs },
      tenant,
      onBytes: (numBytes: number) => held.add(numBytes),
    };
    const bytes = await namingMedia("document", () =>
      observeStage(
        "fetch",
        request.onStage,
        () => fetchImage(sources, reference, context),
        (fetched) => ({
          "url.scheme": reference.slice(0, Math.max(reference.indexOf(":"), 0)),
          "fovea.document.bytes": fetched.byteLength,
        }),
      ),
    );
    const owner = { tenant, request, priority };
    const [contentHash, { numPages, sizes, texts }] = await Promise.all([
      contentHashOf(bytes),
      reader.readPages({ bytes, owner }, { ...range, withTexts: content !== "images" }, signal),
    ]);
    if (sizes.length === 0) throw noPages(numPages, range);
    for (const text of texts ?? []) held.add(text.length * Uint16Array.BYTES_PER_ELEMENT);
    if (content === "text") {
      if (texts!.every((text) => text === "")) throw noText(range.first, texts.length);
      return texts!.map((text, at) => ({ image: null, text: pageText(range.first + at, text) }));
    }
    const scale = (documentPages.dotsPerInch ?? limits.dotsPerInch) / POINTS_PER_INCH;
    const pages = sizes.map((size, at): PageToRender => {
      const { width, height } = pixelSize(size, scale, imageLimits.maxImagePixels);
      return { index: range.first + at, width, height };
    });
    const file: FramesPart["file"] = {
      contentHash,
      parameter,
      async decodeFrames(indices, ownerOfPixels, decoding) {
        const chosen = indices.map((index) => pages[index - range.first]!);
        const pixels = await reader.render({ bytes, owner: ownerOfPixels }, chosen, decoding);
        return chosen.map(({ index, width, height }, at) => ({ index, width, height, data: pixels[at]! }));
      },
    };
    return pages.map((page, at) => {
      const item = { video: asVideo(page), index: 0 };
      const text = texts?.[at] ?? "";
      return {
        image: {
          type: "frames",
          origin: "document",
          file,
          item,
          frameIndices: [page.index],
          isOfVideo: false,
          options: null,
        },
        text: text === "" ? null : pageText(page.index, text),
      };
    });
  }
}

/** @throws EngineError `invalid_argument`. */
function checkPages({ firstPage, lastPage, dotsPerInch, content }: DocumentPages = {}): void {
  const { min, max } = dotsPerInchRange;
  const wrong = (name: keyof DocumentPages, value: unknown, rule: string): EngineError => {
    const parameter = `documentPages.${name}`;
    return new EngineError("invalid_argument", `${parameter} is ${shown(value)}; expected ${rule}.`, { parameter });
  };
  if (content !== undefined && !documentContents.includes(content)) {
    throw wrong("content", content, `one of ${documentContents.join(", ")}`);
  }
  const isPage = (value: number | undefined): boolean =>
    value === undefined || (Number.isSafeInteger(value) && value >= 1);
  if (!isPage(firstPage)) throw wrong("firstPage", firstPage!, "a whole number of at least 1");
  if (!isPage(lastPage) || (lastPage ?? Infinity) < (firstPage ?? 1)) {
    throw wrong("lastPage", lastPage!, `a whole number of at least ${firstPage ?? 1}`);
  }
  if (dotsPerInch !== undefined && !(dotsPerInch >= min && dotsPerInch <= max)) {
    throw wrong("dotsPerInch", dotsPerInch, `a number from ${min} to ${max}`);
  }
}

/** Counted from 0. One page more than there is room for tells that there are too many. */
function rangeOf({ firstPage = 1, lastPage }: DocumentPages = {}, maxPages: number): PageRange {
  const first = firstPage - 1;
  const last = first + maxPages;
  return { first, last: lastPage === undefined ? last : Math.min(lastPage - 1, last) };
}

/** Rounded up, as by other tools. Pages with more pixels than a picture may have, as of posters, are made smaller. */
function pixelSize({ width, height }: PageSize, scale: number, maxPixels: number): PageSize {
  const fitting = Math.min(scale, Math.sqrt(maxPixels / (width * height)));
  const pixels = (points: number): number => Math.ceil(points * fitting);
  // Rounding up may add too many pixels, especially to a page that is one pixel high.
  const shorter = Math.min(pixels(width), pixels(height));
  const longest = Math.floor(maxPixels / shorter);
  return { width: Math.min(pixels(width), longest), height: Math.min(pixels(height), longest) };
}

/** For what counts frames: a single one. */
function asVideo({ width, height }: PageSize): ShownVideo {
  return { width, height, numFrames: 1, framesPerSecond: 1, durationSeconds: 1, frameIndices: [0], frameSeconds: [0] };
}

function pageText(index: number, text: string): string {
  return `Page ${index + 1}:\n${text}\n\n`;
}

function noText(first: number, numPages: number): EngineError {
  const pages = numPages === 1 ? `Page ${first + 1} has` : `Pages ${first + 1} to ${first + numPages} have`;
  return new EngineError("invalid_document", `${pages} no text, as scans have none. Ask for images of the pages.`);
}

function noPages(numPages: number, { first }: PageRange): EngineError {
  if (numPages === 0) return new EngineError("invalid_document", "The document has no pages.");
  return new EngineError(
    "invalid_argument",
    `documentPages.firstPage is ${first + 1}, and the document has ${numPages} ${numPages === 1 ? "page" : "pages"}.`,
    { parameter: "documentPages.firstPage" },
  );
}
