/** Settings of documents. The number of pages that are images is limited by `LIMIT_MM_PER_PROMPT`. */
import { documentContents } from "../../engine/contract/config.ts";
import { defaultDocumentLimits, dotsPerInchRange } from "../../engine/contract/default-limits.ts";
import { setting } from "./setting.ts";
import { bytes, integer, MEBIBYTE, oneOf, seconds } from "./values.ts";

export const documentLimitSettings = {
  maxDocumentBytes: setting("MAX_DOCUMENT_BYTES", bytes(1024, 1024 * MEBIBYTE), "Largest PDF file in bytes.", {
    default: `${defaultDocumentLimits.maxDocumentBytes / MEBIBYTE}MiB`,
  }),
  dotsPerInch: setting(
    "DOCUMENT_DPI",
    integer(dotsPerInchRange.min, dotsPerInchRange.max, "dots per inch"),
    "Resolution in which pages of PDF files become pictures, if the request does not say.",
    { default: defaultDocumentLimits.dotsPerInch },
  ),
  content: setting(
    "DOCUMENT_CONTENT",
    oneOf(documentContents),
    "What the model gets of a page of a PDF file, if the request does not say: images, text or both.",
    { default: defaultDocumentLimits.content },
  ),
  renderTimeoutMs: setting(
    "DOCUMENT_RENDER_TIMEOUT_SECONDS",
    seconds(0.1, 600),
    "Timeout for reading a PDF file, and for rendering as many of its pages as are in memory together.",
    { default: defaultDocumentLimits.renderTimeoutMs / 1000 },
  ),
};
