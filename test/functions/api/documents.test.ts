/** Documents in requests: the forms of their parts, the choice of their pages, and the paths of errors about them. */
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import type { ChatPromptInput, DocumentPages } from "../../../engine/index.ts";
import { asked, errorOf, requestOf } from "../../support/service/media-requests.ts";
import type { ErrorAnswer } from "../../support/service/media-requests.ts";
import { createTestApp } from "../../support/service/test-app.ts";

const url = "data:application/pdf;base64,AAAA";
const part = { type: "file", file: { filename: "a.pdf", file_data: url } };
const document = { type: "document", reference: url };

async function contentOf(body: object, path?: string) {
  const prompt = (await requestOf(body, path))?.prompt as ChatPromptInput | undefined;
  return prompt?.messages.at(-1)?.content;
}

describe("a part", () => {
  test.for<[object, string]>([
    [part, url],
    [{ type: "file", file: { file_data: "AAAA" } }, url],
    [{ file: { file_data: url } }, url],
    [{ type: "file", file: { file_data: "s3://bucket/a.pdf" } }, "s3://bucket/a.pdf"],
    [{ type: "file", file: { file_id: "https://example.com/a.pdf" } }, "https://example.com/a.pdf"],
    [{ type: "file", file: { file_id: "file-1" } }, "file-id:file-1"],
    [{ type: "file", file: { file_data: url, file_id: "file-1" } }, url],
    [{ type: "input_file", file_id: "file-1" }, "file-id:file-1"],
    [{ type: "input_file", filename: "a.pdf", file_data: url }, url],
    [{ type: "input_file", file_url: "https://example.com/a.pdf" }, "https://example.com/a.pdf"],
    [{ type: "document_url", document_url: "https://example.com/a.pdf" }, "https://example.com/a.pdf"],
    [{ type: "document_url", document_url: { url }, document_name: "a" }, url],
    [{ document_url: url }, url],
  ])("%j is a document", async ([given, reference]) => {
    expect(await contentOf(asked(given, "What is this?"))).toEqual([
      { type: "document", reference },
      { type: "text", text: "What is this?" },
    ]);
  });

  test.for<[object, string, RegExp]>([
    [{ type: "file" }, "file", /must be an object: \{"file_data": …\}/],
    [{ type: "file", file: {} }, "file.file_data", /must be a string: a PDF file in base64/],
    [{ type: "input_file" }, "file_data", /must be a string: a PDF file/],
    [{ type: "input_file", file_id: 5 }, "file_id", /must be a string/],
    [{ type: "document_url", document_url: 5 }, "document_url", /must be an object: \{"url": …\}/],
  ])("%j is rejected", async ([given, field, message]) => {
    const error = await errorOf(asked("a", given));
    expect(error.param).toBe(`messages[0].content[1].${field}`);
    expect(error.message).toMatch(message);
  });

  test("of a response is a document, in messages and in results", async () => {
    const file = { type: "input_file", filename: "a.pdf", file_data: url };
    expect(await contentOf({ input: [{ role: "user", content: [file] }] }, "/v1/responses")).toEqual([document]);
    const result = [
      { role: "user", content: "Read it." },
      { type: "function_call", call_id: "a", name: "read", arguments: "{}" },
      { type: "function_call_output", call_id: "a", output: [file] },
    ];
    expect(await contentOf({ input: result }, "/v1/responses")).toEqual([document]);
    const error = await errorOf({ input: [{ role: "user", content: [{ type: "input_file" }] }] }, "/v1/responses");
    expect(error.param).toBe("input[0].content[0].file_data");
  });
});

describe("a block of a message", () => {
  const send = (block: object) =>
    contentOf({ max_tokens: 5, messages: [{ role: "user", content: [block] }] }, "/v1/messages");
  const source = { type: "base64", media_type: "application/pdf", data: "AAAA" };

  test("is a document by its content or its address", async () => {
    expect(await send({ type: "document", source })).toEqual([document]);
    expect(await send({ type: "document", source: { type: "url", url: "https://example.com/a.pdf" } })).toEqual([
      { type: "document", reference: "https://example.com/a.pdf" },
    ]);
    expect(await send({ type: "document", source: { type: "file", file_id: "file-1" } })).toEqual([
      { type: "document", reference: "file-id:file-1" },
    ]);
  });

  test("has its title and context before it", async () => {
    expect(await send({ type: "document", source, title: "Bill", context: "of May" })).toEqual([
      {
        type: "text",
        text: "<document>\n<title>\nBill\n</title>\n<context>\nof May\n</context>\n</document>",
      },
      document,
    ]);
  });

  test("may be within a result", async () => {
    const body = {
      max_tokens: 5,
      messages: [
        { role: "user", content: "Read it." },
        { role: "assistant", content: [{ type: "tool_use", id: "a", name: "read", input: {} }] },
        {
          role: "user",
          content: [{ type: "tool_result", tool_use_id: "a", content: [{ type: "document", source }] }],
        },
      ],
    };
    expect(await contentOf(body, "/v1/messages")).toEqual([document]);
  });

  test("of another type is rejected", async () => {
    const error = await errorOf(
      {
        max_tokens: 5,
        messages: [{ role: "user", content: [{ type: "document", source: { ...source, media_type: "text/csv" } }] }],
      },
      "/v1/messages",
    );
    expect(error.message).toContain("must be application/pdf");
  });
});

describe("media_io_kwargs.document", () => {
  test.for<[object, DocumentPages]>([
    [
      { first_page: 2, last_page: 3, dpi: 200 },
      { firstPage: 2, lastPage: 3, dotsPerInch: 200 },
    ],
    [{ last_page: 1 }, { lastPage: 1 }],
    [{ dpi: 72.5, first_page: null }, { dotsPerInch: 72.5 }],
    [{ content: "both" }, { content: "both" }],
    [{}, {}],
  ])("%j chooses pages", async ([given, expected]) => {
    const request = await requestOf({ ...asked(part), media_io_kwargs: { document: given } });
    expect(request?.documentPages).toEqual(expected);
  });

  test("is left out by most requests", async () => {
    expect(await requestOf({ ...asked(part), media_io_kwargs: { document: null } })).not.toHaveProperty(
      "documentPages",
    );
    expect(await requestOf(asked(part))).not.toHaveProperty("documentPages");
  });

  test.for<[unknown, string, RegExp]>([
    [5, "", /must be an object/],
    [[], "", /must be an object/],
    [
      { pages: "1-2" },
      ".pages",
      /cannot be set; the options of documents that can be set are first_page, last_page, dpi, content/,
    ],
    [{ first_page: 0 }, ".first_page", /must be a whole number of at least 1/],
    [{ first_page: "1" }, ".first_page", /must be a whole number of at least 1/],
    [{ last_page: 1.5 }, ".last_page", /must be a whole number of at least 1/],
    [{ first_page: 3, last_page: 2 }, ".last_page", /is 2; expected at least first_page, 3/],
    [{ dpi: 10 }, ".dpi", /must be a number from 36 to 600/],
    [{ content: "pages" }, ".content", /must be one of images, text, both\.$/],
    [{ content: ["text"] }, ".content", /must be one of images, text, both\.$/],
    [{ dpi: 1e9 }, ".dpi", /must be a number from 36 to 600/],
  ])("%j is rejected", async ([given, field, message]) => {
    const error = await errorOf({ ...asked(part), media_io_kwargs: { document: given } });
    expect(error).toMatchObject({ param: `media_io_kwargs.document${field}`, code: "invalid_value" });
    expect(error.message).toMatch(message);
  });
});

describe("an error of the engine", () => {
  const about = (parameter: string): EngineError =>
    new EngineError("invalid_document", "documentPages.firstPage is wrong.", { parameter });

  test.for<[string, object, string]>([
    ["/v1/chat/completions", asked("a", part, part), "messages[0].content[2].file"],
    [
      "/v1/responses",
      {
        input: [
          {
            role: "user",
            content: [
              { type: "input_file", file_data: url },
              { type: "input_file", file_url: url },
            ],
          },
        ],
      },
      "input[0].content[1].file_url",
    ],
    [
      "/v1/messages",
      {
        max_tokens: 5,
        messages: [
          {
            role: "user",
            content: [
              { type: "document", source: { type: "text", media_type: "text/plain", data: "a" } },
              { type: "document", source: { type: "url", url } },
              { type: "document", source: { type: "url", url } },
            ],
          },
        ],
      },
      "messages[0].content[2].source",
    ],
  ])("names the part: %s", async ([path, body, expected]) => {
    const { post } = createTestApp({ script: [about("prompt.documents[1]")] });
    const answer = await (await post(path, body)).text();
    expect(answer).toContain(expected);
  });

  test("names the option", async () => {
    const { post } = createTestApp({ script: [about("documentPages.firstPage")] });
    const { error } = (await (await post("/v1/chat/completions", asked(part))).json()) as ErrorAnswer;
    expect(error).toMatchObject({
      message: "media_io_kwargs.document.first_page is wrong.",
      param: "media_io_kwargs.document.first_page",
    });
  });
});
