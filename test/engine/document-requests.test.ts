/** Documents in requests, up to the tensors of their pages. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import sharp from "sharp";
import { describe, expect, test } from "vitest";

import type { ImageLimits } from "../../engine/contract/config.ts";
import { defaultDocumentLimits } from "../../engine/contract/default-limits.ts";
import type {
  ContentPart,
  DocumentPages,
  GenerationRequest,
  Prompt,
} from "../../engine/contract/generation-request.ts";
import { createSamplingParams } from "../../engine/contract/sampling-params.ts";
import { createDataUrlImageSource } from "../../engine/images/data-url-image-source.ts";
import { createHttpsImageSource } from "../../engine/images/https-image-source.ts";
import type { ProcessedPrompt } from "../../engine/input/input-processor.ts";
import { pdfUrl, writePdf } from "../support/requests/pdf-writer.ts";
import type { PdfPage } from "../support/requests/pdf-writer.ts";
import { createGoldenInputs, createHubInputs, imageLimits } from "./input/golden-inputs.ts";
import type { GoldenInputs } from "./input/golden-inputs.ts";

const never = new AbortController().signal;
/** One pixel for each point. */
const dotsPerInch = 72;

type Extras = Omit<GenerationRequest, "requestId" | "prompt" | "samplingParams">;

function process(inputs: GoldenInputs, prompt: Prompt, extras: Extras = {}): Promise<ProcessedPrompt> {
  const samplingParams = createSamplingParams();
  const request = { requestId: "request", prompt, samplingParams, documentPages: { dotsPerInch }, ...extras };
  return inputs.inputProcessor.process(request, never);
}

function userSays(...content: readonly ContentPart[]): Prompt {
  return { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true };
}

const question = { type: "text", text: "what is written?" } as const;
const size = { width: 48, height: 36 };

function pageOf(red: number, green: number, blue: number): PdfPage {
  const data = Uint8Array.from({ length: 48 * 36 * 3 }, (_, at) => [red, green, blue][at % 3]! + (at % 5));
  return { ...size, picture: { ...size, data } };
}

const pages = [pageOf(200, 40, 30), pageOf(30, 200, 40), pageOf(40, 30, 200)];
const document: ContentPart = { type: "document", reference: pdfUrl(pages) };
const pictures = await Promise.all(
  pages.map(async ({ picture }): Promise<ContentPart> => {
    const png = await sharp(picture!.data, { raw: { ...size, channels: 3 } })
      .png()
      .toBuffer();
    return { type: "image", reference: `data:image/png;base64,${png.toString("base64")}` };
  }),
);

function tensorsOf({ images }: ProcessedPrompt) {
  return images.map(({ tensors, placeholder, modality }) => ({ tensors, placeholder, modality }));
}

// With pictures only; with videos and positions of their own; with numbers before pictures.
describe.for(["llava-default", "qwen3-vl", "molmo2"] as const)("the pages of a document for %s", (name) => {
  const create = (limits: ImageLimits): Promise<GoldenInputs> => {
    const overrides = { imageLimits: limits, settings: { imageLimits: limits } };
    return name === "llava-default" ? createGoldenInputs(name, overrides) : createHubInputs(name, overrides);
  };

  test("are the pictures of their message, in order", async () => {
    await using inputs = await create(imageLimits);
    const ofDocument = await process(inputs, userSays(document, question));
    const ofPictures = await process(inputs, userSays(...pictures, question));
    expect(ofDocument.promptTokenIds).toEqual(ofPictures.promptTokenIds);
    expect(tensorsOf(ofDocument)).toEqual(tensorsOf(ofPictures));
    expect(ofDocument.positions).toEqual(ofPictures.positions);
  });

  test("stand among pictures", async () => {
    await using inputs = await create({ ...imageLimits, maxImagesPerPrompt: 5 });
    const [first, second] = pictures;
    const mixed = await process(inputs, userSays(first!, document, question, second!));
    const apart = await process(inputs, userSays(first!, ...pictures, question, second!));
    expect(mixed.promptTokenIds).toEqual(apart.promptTokenIds);
    expect(tensorsOf(mixed)).toEqual(tensorsOf(apart));
  });
});

describe("a request", () => {
  test.for<[DocumentPages, number[]]>([
    [{ firstPage: 2 }, [1, 2]],
    [{ lastPage: 2 }, [0, 1]],
    [{ firstPage: 2, lastPage: 2 }, [1]],
    [{ firstPage: 3, lastPage: 99 }, [2]],
  ])("chooses pages: %j", async ([chosen, expected]) => {
    await using inputs = await createGoldenInputs("llava-default");
    const ofDocument = await process(inputs, userSays(document, question), {
      documentPages: { dotsPerInch, ...chosen },
    });
    const ofPictures = await process(inputs, userSays(...expected.map((at) => pictures[at]!), question));
    expect(tensorsOf(ofDocument)).toEqual(tensorsOf(ofPictures));
  });

  test("chooses the text of pages, which are no images then", async () => {
    const noImages = { ...imageLimits, maxImagesPerPrompt: 0 };
    await using inputs = await createGoldenInputs("llava-default", {
      imageLimits: noImages,
      settings: { imageLimits: noImages },
    });
    const letters = ["Dear Ann", "", "Yours, Bo"].map((line) => ({ width: 300, height: 100, lines: [line] }));
    const part: ContentPart = { type: "document", reference: pdfUrl(letters) };
    const textOf = (page: number): ContentPart => ({
      type: "text",
      text: `Page ${page}:\n${letters[page - 1]!.lines[0]}\n\n`,
    });
    for (const [chosen, expected] of [
      [{}, [1, 2, 3]],
      [{ firstPage: 2 }, [2, 3]],
      [{ lastPage: 1 }, [1]],
    ] as const) {
      const ofDocument = await process(inputs, userSays(part, question), {
        documentPages: { content: "text", ...chosen },
      });
      const ofTexts = await process(inputs, userSays(...expected.map(textOf), question));
      expect(ofDocument).toEqual(ofTexts);
    }
  });

  test("chooses images of pages, each with its text behind it", async () => {
    await using inputs = await createGoldenInputs("llava-default");
    const part: ContentPart = { type: "document", reference: pdfUrl([{ ...pages[0]!, lines: ["Hello"] }, pages[1]!]) };
    const both = await process(inputs, userSays(part, question), { documentPages: { dotsPerInch, content: "both" } });
    const alone = await process(inputs, userSays(part, question));
    const text = { type: "text", text: "Page 1:\nHello\n\n" } as const;
    const ofParts = await process(inputs, userSays(pictures[0]!, text, pictures[1]!, question));
    expect(both.promptTokenIds).toEqual(ofParts.promptTokenIds);
    expect(tensorsOf(both).map(({ tensors }) => tensors)).toEqual(tensorsOf(alone).map(({ tensors }) => tensors));
  });

  test("gets what the server is set to, unless it says otherwise", async () => {
    const documentLimits = { ...defaultDocumentLimits, content: "text" } as const;
    await using inputs = await createGoldenInputs("llava-default", { settings: { documentLimits } });
    const part: ContentPart = { type: "document", reference: pdfUrl([{ ...size, lines: ["a"] }]) };
    expect((await process(inputs, userSays(part, question))).images).toHaveLength(0);
    const documentPages = { dotsPerInch, content: "images" } as const;
    expect((await process(inputs, userSays(part, question), { documentPages })).images).toHaveLength(1);
  });

  test.for<[DocumentPages, string]>([
    [{ firstPage: 2, lastPage: 2 }, "Page 2 has no text, as scans have none. Ask for images of the pages."],
    [{}, "Pages 1 to 3 have no text, as scans have none. Ask for images of the pages."],
  ])("for the text of pages without any is rejected: %j", async ([chosen, message]) => {
    await using inputs = await createGoldenInputs("llava-default");
    const documentPages: DocumentPages = { content: "text", ...chosen };
    await expect(process(inputs, userSays(document, question), { documentPages })).rejects.toMatchObject({
      code: "invalid_document",
      message,
      parameter: "prompt.documents[0]",
    });
  });

  test("chooses the resolution, which is part of a page's identity", async () => {
    await using inputs = await createHubInputs("qwen3-vl");
    const part: ContentPart = { type: "document", reference: pdfUrl([{ width: 72, height: 144, lines: ["a"] }]) };
    const hashOf = async (documentPages: DocumentPages): Promise<string[]> =>
      (await process(inputs, userSays(part, question), { documentPages })).images.map(({ mmHash }) => mmHash);
    const usual = await hashOf({});
    expect(await hashOf({ dotsPerInch: defaultDocumentLimits.dotsPerInch })).toEqual(usual);
    expect(await hashOf({ dotsPerInch: 100 })).not.toEqual(usual);
  });

  test.for<[DocumentPages, string, string]>([
    [{ firstPage: 4 }, "documentPages.firstPage", "documentPages.firstPage is 4, and the document has 3 pages."],
    [
      { firstPage: 0 },
      "documentPages.firstPage",
      "documentPages.firstPage is 0; expected a whole number of at least 1.",
    ],
    [
      { firstPage: 2, lastPage: 1 },
      "documentPages.lastPage",
      "documentPages.lastPage is 1; expected a whole number of at least 2.",
    ],
    [
      { lastPage: 1.5 },
      "documentPages.lastPage",
      "documentPages.lastPage is 1.5; expected a whole number of at least 1.",
    ],
    [
      { content: "pages" as "text" },
      "documentPages.content",
      'documentPages.content is "pages"; expected one of images, text, both.',
    ],
    [
      { dotsPerInch: Number.NaN },
      "documentPages.dotsPerInch",
      "documentPages.dotsPerInch is NaN; expected a number from 36 to 600.",
    ],
  ])("for pages that cannot be shown is rejected: %j", async ([documentPages, parameter, message]) => {
    await using inputs = await createGoldenInputs("llava-default");
    await expect(process(inputs, userSays(document, question), { documentPages })).rejects.toMatchObject({
      code: "invalid_argument",
      parameter,
      message,
    });
  });
});

describe("limits", () => {
  test("of pictures count pages", async () => {
    const limits = { ...imageLimits, maxImagesPerPrompt: 3 };
    await using inputs = await createGoldenInputs("llava-default", {
      imageLimits: limits,
      settings: { imageLimits: limits },
    });
    expect((await process(inputs, userSays(document, question))).images).toHaveLength(3);
    await expect(process(inputs, userSays(document, pictures[0]!, question))).rejects.toMatchObject({
      code: "too_many_images",
      message: expect.stringMatching(
        /^The prompt has 4 images and pages of documents, .*; the limit is 3, .* Choose fewer/,
      ),
      setting: "maxImagesPerPrompt",
    });
    // Before any of them is read.
    const missing: ContentPart = { type: "document", reference: "data:application/pdf;base64," };
    const many = Array.from({ length: 4 }, () => missing);
    await expect(process(inputs, userSays(...many, question))).rejects.toMatchObject({ code: "too_many_images" });
    const long: ContentPart = {
      type: "document",
      reference: pdfUrl(Array.from({ length: 400 }, () => ({ width: 9, height: 9 }))),
    };
    await expect(process(inputs, userSays(long, question))).rejects.toMatchObject({ code: "too_many_images" });
  });

  test("of the prompt's length name the pages", async () => {
    await using inputs = await createGoldenInputs("llava-default", { maxModelLen: 40 });
    await expect(process(inputs, userSays(document, question))).rejects.toMatchObject({
      code: "prompt_too_long",
      message: expect.stringMatching(/ It shows 3 pages of documents; ask for fewer, or for a lower resolution\.$/),
    });
  });

  test("of bytes hold for the file", async () => {
    const documentLimits = { ...defaultDocumentLimits, maxDocumentBytes: 1000 };
    await using inputs = await createGoldenInputs("llava-default", { settings: { documentLimits } });
    await expect(process(inputs, userSays(document, question))).rejects.toMatchObject({
      code: "document_too_large",
      message: expect.stringMatching(/^The document has \d+ bytes; the limit is 1000\.$/),
      setting: "maxDocumentBytes",
      parameter: "prompt.documents[0]",
    });
  });

  test("of pixels make large pages smaller", async () => {
    const limits = { ...imageLimits, maxImagePixels: 10_000 };
    await using inputs = await createGoldenInputs("llava-default", {
      imageLimits: limits,
      settings: { imageLimits: limits },
    });
    const posters: ContentPart = {
      type: "document",
      reference: pdfUrl([
        { width: 3000, height: 1500 },
        { width: 14_000, height: 2 },
      ]),
    };
    expect((await process(inputs, userSays(posters, question))).images).toHaveLength(2);
  });
});

test("a document is fetched, and errors of its source are about it", async () => {
  const file = writePdf(pages);
  let numRequests = 0;
  await using server = createServer((request, response) => {
    numRequests++;
    response.statusCode = request.url === "/a.pdf" ? 200 : 404;
    response.end(request.url === "/a.pdf" ? file : "");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const host = new URL(address).host;
  const web = createHttpsImageSource({ allowHttp: true, allowedPrivateHosts: [host] });
  await using inputs = await createGoldenInputs("llava-default", { sources: [web, createDataUrlImageSource()] });
  const ofServer: ContentPart = { type: "document", reference: `${address}/a.pdf` };
  const fetched = await process(inputs, userSays(ofServer, question));
  expect(tensorsOf(fetched)).toEqual(tensorsOf(await process(inputs, userSays(document, question))));
  expect(numRequests).toBe(1);
  const missing: ContentPart = { type: "document", reference: `${address}/b.pdf` };
  await expect(process(inputs, userSays(document, missing, question))).rejects.toMatchObject({
    code: "image_unreachable",
    message: expect.stringMatching(/^The document .* 404/),
    parameter: "prompt.documents[1]",
  });
  await web.close();
});

test("a file that is no PDF is rejected by its place", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const text: ContentPart = { type: "document", reference: "data:text/plain;base64,SGVsbG8=" };
  await expect(process(inputs, userSays(question, document, text))).rejects.toMatchObject({
    code: "invalid_document",
    message: "The document cannot be read as a PDF. Send other files as text or as pictures.",
    parameter: "prompt.documents[1]",
  });
});

test("a document outside of a conversation is rejected", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const parts = { kind: "parts", parts: [document, question], addSpecialTokens: false } as const;
  await expect(process(inputs, parts)).rejects.toMatchObject({
    code: "invalid_argument",
    message: "Only conversations can have documents.",
  });
});
