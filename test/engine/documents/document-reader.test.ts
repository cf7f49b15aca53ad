import { array, assert, asyncProperty, nat, tuple } from "fast-check";
import { afterAll, describe, expect, test } from "vitest";

import type { EngineError } from "../../../engine/contract/errors.ts";
import { createDocumentReader } from "../../../engine/documents/document-reader.ts";
import type { DocumentReader, DocumentReaderOptions } from "../../../engine/documents/document-reader.ts";
import { writePdf } from "../../support/requests/pdf-writer.ts";
import type { PdfPage } from "../../support/requests/pdf-writer.ts";

const reader = createDocumentReader();
afterAll(() => reader.close());

const never = new AbortController().signal;
const all = { first: 0, last: 1000, withTexts: false };
const blank: PdfPage = { width: 200, height: 100 };

function readerWith(options: DocumentReaderOptions): DocumentReader & AsyncDisposable {
  const created = createDocumentReader(options);
  return { ...created, [Symbol.asyncDispose]: () => created.close() };
}

/** Red, green and blue of the pixel of a page that is `width` wide. */
function pixel(pixels: Uint8Array, width: number, x: number, y: number): number[] {
  return [...pixels.subarray((y * width + x) * 3, (y * width + x) * 3 + 3)];
}

async function codeOf(reading: Promise<unknown>): Promise<string> {
  return reading.then(
    () => "read",
    (error: EngineError) => error.code,
  );
}

async function expectToServe(serving: DocumentReader): Promise<void> {
  const { numPages } = await serving.readPages({ bytes: writePdf([blank]) }, all, never);
  expect(numPages).toBe(1);
}

describe("sizes", () => {
  test("are those of pages as they are shown", async () => {
    const bytes = writePdf([blank, { ...blank, rotation: 90 }, { width: 612.5, height: 792 }]);
    expect(await reader.readPages({ bytes }, all, never)).toMatchObject({
      numPages: 3,
      sizes: [
        { width: 200, height: 100 },
        { width: 100, height: 200 },
        { width: 612.5, height: 792 },
      ],
    });
  });

  test("are read of a range only", async () => {
    const bytes = writePdf([blank, { width: 20, height: 30 }, blank]);
    const range = { first: 1, last: 1, withTexts: false };
    expect(await reader.readPages({ bytes }, range, never)).toMatchObject({
      numPages: 3,
      sizes: [{ width: 20, height: 30 }],
    });
    expect((await reader.readPages({ bytes }, { first: 3, last: 9, withTexts: false }, never)).sizes).toEqual([]);
  });

  test("of a file that is read stay those of its bytes, which the caller keeps", async () => {
    const bytes = writePdf([blank]);
    const before = bytes.toString("hex");
    await reader.readPages({ bytes }, all, never);
    expect(bytes.toString("hex")).toBe(before);
  });
});

describe("the text of a page", () => {
  const page: PdfPage = { width: 600, height: 400 };
  const textsOf = async (pages: readonly PdfPage[], range = { first: 0, last: 1000 }) =>
    (await reader.readPages({ bytes: writePdf(pages) }, { ...range, withTexts: true }, never)).texts;

  test("is read if it is asked for", async () => {
    const bytes = writePdf([{ ...page, lines: ["Invoice"] }]);
    expect((await reader.readPages({ bytes }, all, never)).texts).toBe(null);
    expect((await reader.readPages({ bytes }, { ...all, withTexts: true }, never)).texts).toEqual(["Invoice"]);
  });

  test("has its lines, from the left to the right", async () => {
    const at = (x: number, y: number, text: string) => `BT /F1 12 Tf ${x} ${y} Td (${text}) Tj ET `;
    const operators = at(300, 300, "12.50") + at(10, 300, "Tea") + at(10, 280, "Sm\\371r");
    expect(await textsOf([{ ...page, lines: ["Bill", "of May"], operators }])).toEqual([
      "Bill\nof May\nTea 12.50\nSmør",
    ]);
  });

  test("has whole words where a line ends within one", async () => {
    expect(await textsOf([{ ...page, lines: ["an exam-", "ple"] }])).toEqual(["an example"]);
  });

  test("may be invisible, and is empty for a picture", async () => {
    const picture = { width: 1, height: 1, data: new Uint8Array(3) };
    const operators = "BT /F1 12 Tf 3 Tr 10 10 Td (recognised) Tj ET";
    expect(
      await textsOf([
        { ...page, operators, picture },
        { ...page, picture },
      ]),
    ).toEqual(["recognised", ""]);
  });

  test("is that of the chosen pages", async () => {
    const pages = [["a"], ["b"], ["c"]].map((lines) => ({ width: 600, height: 400, lines }));
    expect(await textsOf(pages, { first: 1, last: 1 })).toEqual(["b"]);
    expect(await textsOf(pages, { first: 1, last: Infinity })).toEqual(["b", "c"]);
  });

  test("that is too long is rejected, and the next document is read", async () => {
    const long = `BT /F1 1 Tf 1 0 0 1 0 200 Tm ${`(${"long ".repeat(2_000)}) Tj `.repeat(40)} ET`;
    await expect(textsOf(Array.from({ length: 6 }, () => ({ ...page, operators: long })))).rejects.toMatchObject({
      code: "document_too_large",
      message: "The text of the document has more than 2097152 characters. Choose fewer of its pages.",
    });
    await expectToServe(reader);
  });
});

describe("a page", () => {
  test("has its drawings on white, red before blue", async () => {
    const bytes = writePdf([{ ...blank, operators: "1 0 0 rg 0 0 100 50 re f 0 0 1 rg 100 50 100 50 re f" }]);
    const [pixels] = await reader.render({ bytes }, [{ index: 0, width: 400, height: 200 }], never);
    expect(pixels).toHaveLength(400 * 200 * 3);
    expect(pixel(pixels!, 400, 10, 190)).toEqual([255, 0, 0]);
    expect(pixel(pixels!, 400, 390, 10)).toEqual([0, 0, 255]);
    expect(pixel(pixels!, 400, 10, 10)).toEqual([255, 255, 255]);
  });

  test("of odd width has rows without padding", async () => {
    const bytes = writePdf([{ ...blank, operators: "0 1 0 rg 0 0 200 100 re f" }]);
    const [pixels] = await reader.render({ bytes }, [{ index: 0, width: 33, height: 17 }], never);
    expect(pixels).toHaveLength(33 * 17 * 3);
    expect(pixels!.every((value, at) => value === (at % 3 === 1 ? 255 : 0))).toBe(true);
  });

  test("has text in a font that the file does not contain", async () => {
    const bytes = writePdf([{ ...blank, lines: ["Invoice"] }]);
    const [pixels] = await reader.render({ bytes }, [{ index: 0, width: 200, height: 100 }], never);
    const numDark = pixels!.filter((value) => value < 100).length;
    expect(numDark).toBeGreaterThan(300);
  });

  test("has the values of its form", async () => {
    const bytes = writePdf([{ ...blank, field: "0 0 1 rg 0 0 100 100 re f" }, blank]);
    const page = { width: 200, height: 100 };
    const [form, plain] = await reader.render(
      { bytes },
      [
        { index: 0, ...page },
        { index: 1, ...page },
      ],
      never,
    );
    expect(pixel(form!, 200, 50, 50)).toEqual([0, 0, 255]);
    expect(pixel(form!, 200, 150, 50)).toEqual([255, 255, 255]);
    expect(pixel(plain!, 200, 50, 50)).toEqual([255, 255, 255]);
  });

  test("has its pictures pixel by pixel", async () => {
    const data = Uint8Array.from({ length: 8 * 4 * 3 }, (_, at) => (at * 7) % 256);
    const bytes = writePdf([{ width: 8, height: 4, picture: { width: 8, height: 4, data } }]);
    const [pixels] = await reader.render({ bytes }, [{ index: 0, width: 8, height: 4 }], never);
    expect(pixels).toEqual(data);
  });

  test("is the one asked for, in its size", async () => {
    const bytes = writePdf([blank, { ...blank, operators: "0 g 0 0 200 100 re f" }, blank]);
    const pages = [
      { index: 2, width: 10, height: 5 },
      { index: 1, width: 4, height: 2 },
    ];
    const [third, second] = await reader.render({ bytes }, pages, never);
    expect(third!.length).toBe(150);
    expect([...second!]).toEqual(Array.from({ length: 24 }, () => 0));
  });
});

describe("bytes that are no document", () => {
  const file = writePdf([{ ...blank, lines: ["a"] }]);
  test.for<[string, Uint8Array]>([
    ["nothing", new Uint8Array()],
    ["a text", Buffer.from("Hello")],
    ["a header", Buffer.from("%PDF-1.7\n")],
    ["a picture", Buffer.from("89504e470d0a1a0a", "hex")],
    ["the beginning of a document", file.subarray(0, 40)],
  ])("are rejected: %s", async ([, bytes]) => {
    expect(await codeOf(reader.readPages({ bytes }, all, never))).toBe("invalid_document");
    await expectToServe(reader);
  });

  test("behind a password are rejected with what to do", async () => {
    const locked = Buffer.from(
      file
        .toString("latin1")
        .replace(
          "/Root 1 0 R",
          `/Root 1 0 R /ID [<00><00>] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <${"11".repeat(32)}> /U <${"22".repeat(32)}> >>`,
        ),
      "latin1",
    );
    await expect(reader.readPages({ bytes: locked }, all, never)).rejects.toMatchObject({
      code: "invalid_document",
      message: "The document is protected by a password. Send it without one.",
    });
  });

  test("a page that there is not is rejected", async () => {
    const rendering = reader.render({ bytes: file }, [{ index: 5, width: 8, height: 8 }], never);
    await expect(rendering).rejects.toMatchObject({
      code: "invalid_document",
      message: "Page 6 of the document is broken.",
    });
  });

  test("changed at random never end the reader", async () => {
    const page = { index: 0, width: 40, height: 20 };
    await assert(
      asyncProperty(array(tuple(nat(file.length - 1), nat(255)), { minLength: 1, maxLength: 30 }), async (changes) => {
        const bytes = Uint8Array.from(file);
        for (const [at, value] of changes) bytes[at] = value;
        const code = await codeOf(reader.render({ bytes }, [page], never));
        expect(["read", "invalid_document", "document_too_large"]).toContain(code);
      }),
      { numRuns: 200 },
    );
    await expectToServe(reader);
  });
});

/** Fills its page so often that rendering it in many pixels takes minutes, and little memory. */
const slow = writePdf([{ ...blank, operators: "0 0 200 100 re f\n".repeat(50_000) }]);
const slowPage = { index: 0, width: 4000, height: 2000 };

/** Each of `depth` forms draws the next one ten times. */
function nestedForms(depth: number): Buffer<ArrayBuffer> {
  const body = writePdf([{ ...blank, operators: "/F0 Do" }]).toString("latin1");
  const first = 100;
  const forms = Array.from({ length: depth }, (_, level) => {
    const isLast = level === depth - 1;
    const content = isLast ? "0 0 10 10 re f" : `/F${level + 1} Do `.repeat(10);
    const inner = isLast ? "" : `/XObject << /F${level + 1} ${first + level + 1} 0 R >>`;
    return `${first + level} 0 obj\n<< /Type /XObject /Subtype /Form /BBox [0 0 200 100] /Resources << ${inner} >> /Length ${content.length} >>\nstream\n${content}\nendstream\nendobj\n`;
  });
  // Without a table of objects, readers look for them.
  const objects = body
    .slice(0, body.indexOf("xref"))
    .replace("/Font << /F1 3 0 R >> ", `/Font << /F1 3 0 R >> /XObject << /F0 ${first} 0 R >> `);
  return Buffer.from(`${objects}${forms.join("")}trailer << /Root 1 0 R >>\n%%EOF\n`, "latin1");
}

describe("a document that costs too much", () => {
  test("is ended after its time, and the next one is read", async () => {
    await using limited = readerWith({ renderTimeoutMs: 3000 });
    await expectToServe(limited);
    await expect(limited.render({ bytes: slow }, [slowPage], never)).rejects.toMatchObject({
      code: "document_too_large",
      message: "Reading the document takes longer than 3000 ms.",
      setting: "documentRenderTimeoutMs",
    });
    await expectToServe(limited);
  });

  test("because its pages draw each other is ended at the limit of memory", async () => {
    const bytes = nestedForms(12);
    const page = { index: 0, width: 200, height: 100 };
    expect(await codeOf(reader.render({ bytes }, [page], never))).toBe("document_too_large");
    await expectToServe(reader);
  });

  test("is ended at the limit of memory, and the next one is read", async () => {
    await using limited = readerWith({ maxMemoryBytes: 64 * 1024 ** 2 });
    const bytes = writePdf([blank]);
    const page = { index: 0, width: 8000, height: 8000 };
    await expect(limited.render({ bytes }, [page], never)).rejects.toMatchObject({
      code: "document_too_large",
      message: expect.stringMatching(/^The document needs more than 67108864 bytes of memory/),
    });
    await expectToServe(limited);
    await using roomy = readerWith({});
    expect((await roomy.render({ bytes }, [page], never))[0]).toHaveLength(8000 * 8000 * 3);
    await expectToServe(roomy);
  });
});

describe("requests", () => {
  test("that are aborted end their document", async () => {
    await using own = readerWith({});
    const abort = new AbortController();
    const rendering = own.render({ bytes: slow }, [slowPage], abort.signal);
    const next = own.readPages({ bytes: writePdf([blank]) }, all, never);
    setTimeout(() => abort.abort(), 300);
    expect(await codeOf(rendering)).toBe("aborted");
    expect((await next).numPages).toBe(1);
  });

  test("beyond the limit of the queue are rejected", async () => {
    await using own = readerWith({ maxNumWaiting: 2 });
    const bytes = writePdf([blank]);
    const codes = await Promise.all(
      Array.from({ length: 8 }, () => codeOf(own.readPages({ bytes, owner: { tenant: "", request: {} } }, all, never))),
    );
    expect(codes).toContain("queue_full");
    expect(codes).toContain("read");
    await expectToServe(own);
  });

  test("of a closed reader are rejected, running ones too", async () => {
    const own = createDocumentReader();
    const running = codeOf(own.render({ bytes: slow }, [slowPage], never));
    await own.close();
    await own.close();
    expect(await running).toBe("closed");
    expect(await codeOf(own.readPages({ bytes: writePdf([blank]) }, all, never))).toBe("closed");
  });
});
