/** Pages of PDF files to pixels, against the same pages sent as PNG files; and their texts, against their pixels. */
import { performance } from "node:perf_hooks";
import sharp from "sharp";

import { defaultImageLimits } from "../../engine/contract/default-limits.ts";
import { createDocumentReader } from "../../engine/documents/document-reader.ts";
import type { PageToRender } from "../../engine/documents/document-reader.ts";
import { createImageProcessor } from "../../engine/images/image-processor.ts";
import { writePdf } from "../support/requests/pdf-writer.ts";
import type { PdfPage } from "../support/requests/pdf-writer.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";

/** A4 in points, and at 144 dots per inch. */
const paper = { width: 595, height: 842 };
const page: PageToRender = { index: 0, width: 1190, height: 1684 };

const NUM_LINES = 26;
/** A4 at 200 dots per inch. */
const scanned = { width: 1654, height: 2339 };

const subjects: readonly { readonly name: string; readonly content: PdfPage }[] = [
  {
    name: "text",
    content: {
      ...paper,
      lines: Array.from(
        { length: NUM_LINES },
        (_, row) => `${row + 1}. A line of a letter, as long as its page is wide`,
      ),
    },
  },
  { name: "scan", content: { ...paper, picture: { ...scanned, data: grey(scanned.width * scanned.height * 3) } } },
];

/** Paper with some noise, which compresses about as well as a scan. */
function grey(numBytes: number): Uint8Array {
  return Uint8Array.from({ length: numBytes }, (_, at) => 235 + (((at * 7919) >> 7) % 16));
}

const everyText = { first: 0, last: 0, withTexts: true };
const never = new AbortController().signal;

async function secondsOf(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1_000;
}

export async function benchDocuments(rounds: number): Promise<Figure[]> {
  const reader = createDocumentReader();
  const images = createImageProcessor(defaultImageLimits);
  try {
    const figures: Figure[] = [];
    for (const { name, content } of subjects) {
      const bytes = writePdf([content]);
      const [data] = await reader.render({ bytes }, [page], never);
      const { width, height } = page;
      const png = await sharp(data, { raw: { width, height, channels: 3 } })
        .png()
        .toBuffer();
      await images.decode({ bytes: png }, never);
      const ours: number[] = [];
      const theirs: number[] = [];
      const texts: number[] = [];
      for (let round = 0; round < rounds; round++) {
        ours.push(1 / (await secondsOf(() => reader.render({ bytes }, [page], never))));
        theirs.push(1 / (await secondsOf(() => images.decode({ bytes: png }, never))));
        texts.push(1 / (await secondsOf(() => reader.readPages({ bytes }, everyText, never))));
        reportProgress(
          `${name}, round ${round + 1} of ${rounds}: ${(1_000 / ours.at(-1)!).toFixed(0)} ms, PNG ${(1_000 / theirs.at(-1)!).toFixed(0)} ms, text ${(1_000 / texts.at(-1)!).toFixed(1)} ms`,
        );
      }
      figures.push(
        ratioFigure({
          name: `a page of A4 at 144 dots per inch, ${name}, against its PNG`,
          unit: "1/s",
          ours,
          theirs,
          target: 0.4,
        }),
        ratioFigure({
          name: `the text of that page, against its pixels`,
          unit: "1/s",
          ours: texts,
          theirs: ours,
          target: 2,
        }),
      );
    }
    return figures;
  } finally {
    await Promise.all([reader.close(), images.close()]);
  }
}
