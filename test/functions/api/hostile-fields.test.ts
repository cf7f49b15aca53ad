/** Sends values that could exhaust memory, stack or time to every field of every route that takes JSON. */
import { afterAll, describe, expect, test } from "vitest";
import { z } from "zod";

import { detokenizeRequest } from "../../../functions/api/routes/detokenize.ts";
import { parseBatchLine } from "../../../functions/batch/batch-line.ts";
import { batchRequest } from "../../../functions/batch/routes/batch-request.ts";
import { chatCompletionKind } from "../../../functions/generation/chat-completion-kind.ts";
import { completionKind } from "../../../functions/generation/completion-kind.ts";
import { countedPromptKind, messagesKind } from "../../../functions/generation/messages/messages-kind.ts";
import { responsesKind } from "../../../functions/generation/responses/responses-kind.ts";
import { parseFields } from "../../../functions/generation/schemas/parse-fields.ts";
import { refuseUnservedFields } from "../../../functions/generation/schemas/unserved-fields.ts";
import type { UnservedFields } from "../../../functions/generation/schemas/unserved-fields.ts";
import { HttpError } from "../../../functions/http/errors.ts";
import { parseJson } from "../../../functions/http/json-body.ts";
import { deepValues, hostileBody, longValues, oddValues } from "../../support/requests/hostile-values.ts";
import { fieldsOf } from "../../support/requests/schema-fields.ts";
import type { SchemaField } from "../../support/requests/schema-fields.ts";
import { chatBody, createTestApp } from "../../support/service/test-app.ts";

interface Route {
  readonly path: string;
  readonly schema: z.ZodType;
  readonly unservedFields: UnservedFields;
}

const chat: Route = { path: "/v1/chat/completions", ...chatCompletionKind };
const completions: Route = { path: "/v1/completions", ...completionKind };
const batches: Route = { path: "/v1/batches", schema: batchRequest, unservedFields: {} };
const detokenize: Route = { path: "/detokenize", schema: detokenizeRequest, unservedFields: {} };
const responses: Route = { path: "/v1/responses", ...responsesKind };
const messages: Route = { path: "/v1/messages", ...messagesKind };
const counted: Route = { path: "/v1/messages/count_tokens", ...countedPromptKind };
const routes = [chat, completions, detokenize, batches, responses, messages, counted];

const [
  chatFields,
  ownCompletionFields,
  detokenizeFields,
  batchFields,
  ownResponseFields,
  ownMessageFields,
  ownCountedFields,
] = fieldsOf(...routes.map(({ schema }) => schema));
/** The routes that generate text share most of their schemas, which are tested once. */
const distinctFields: readonly (readonly [Route, readonly SchemaField[]])[] = [
  [chat, chatFields!],
  [completions, ownCompletionFields!],
  [detokenize, detokenizeFields!],
  [batches, batchFields!],
  [responses, ownResponseFields!],
  [messages, ownMessageFields!],
  [counted, ownCountedFields!],
];

/** Checks a body like the routes and the batch lines do; null if it is valid. */
function refusalOf({ schema, unservedFields }: Route, parse: () => unknown): HttpError | null {
  try {
    const body = parse() as object;
    refuseUnservedFields(body, unservedFields);
    parseFields(schema, body);
    return null;
  } catch (error) {
    if (error instanceof HttpError) return error;
    throw error;
  }
}

const topOf = (path: string | null): string => (path ?? "").split(/[.[]/, 1)[0]!;

/** Only the body bounds these texts: the engine counts their tokens, the store looks them up. */
const freeTexts = new Set([
  "messages[].content",
  "messages[].content[]",
  "messages[].content[].text",
  "messages[].content[].refusal",
  "messages[].content[].image_url",
  "messages[].content[].image_url.url",
  "messages[].content[].image_embeds",
  "messages[].content[].file.file_data",
  "messages[].content[].file_data",
  "messages[].content[].file_url",
  "messages[].content[].document_url",
  "messages[].content[].document_url.url",
  "messages[].content[].video_url",
  "messages[].content[].video_url.url",
  "messages[].content[].video",
  "messages[].content[].video[]",
  "messages[].reasoning_content",
  "messages[].reasoning",
  "messages[].content[].image_embeds.image_embeds",
  "prompt",
  "prompt[]",
  "images[]",
  "images[].image_url",
  "images[].image_url.url",
  "images[].image_embeds",
  "images[].image_embeds.image_embeds",
  "stop",
  "stop[]",
  "input_file_id",
  "metadata.*",
  "input",
  "instructions",
  "input[].content",
  "input[].content[].text",
  "input[].content[].refusal",
  "input[].content[].image_url",
  "input[].content[].file_data",
  "input[].content[].file_url",
  "input[].content[].video_url",
  "input[].content[].video_url.url",
  "input[].output",
  "input[].output[].text",
  "input[].output[].refusal",
  "input[].output[].image_url",
  "input[].output[].file_data",
  "input[].output[].file_url",
  "input[].output[].video_url",
  "input[].output[].video_url.url",
  "input[].summary[].text",
  "input[].encrypted_content",
  "input[].content[].text",
  "text.format.description",
  "system",
  "system[].text",
  "messages[].content[].source.data",
  "messages[].content[].source.url",
  "messages[].content[].content",
  "messages[].content[].content[].text",
  "messages[].content[].content[].source.data",
  "messages[].content[].content[].source.url",
  "messages[].content[].content[].source",
  "messages[].content[].content[].title",
  "messages[].content[].content[].context",
  "messages[].content[].content[].content[].text",
  "messages[].content[].content[].source.content",
  "messages[].content[].content[].source.content[].text",
  "messages[].content[].source",
  "messages[].content[].title",
  "messages[].content[].context",
  "messages[].content[].source.content",
  "messages[].content[].source.content[].text",
  "messages[].content[].thinking",
  "stop_sequences[]",
]);

describe("a value that is longer or deeper than in any request", () => {
  // Parsed once, because only the schemas of the fields differ. The test over HTTP sends them as texts.
  const parsedLongValues = longValues.map(({ name, json }) => ({ name, value: parseJson(json, "The body") }));

  // The routes refuse a body that is no object before they look at it; the test over HTTP shows it.
  for (const [route, [, ...fields]] of distinctFields) {
    test.for(fields)(`is rejected by ${route.path} with the field's name at $path`, (field) => {
      const taken = new Set(freeTexts.has(field.path) ? ["a string of 10 MB"] : []);
      const bodies = [
        ...parsedLongValues
          .filter(({ name }) => !taken.has(name))
          .map(({ name, value }) => ({ name, parse: () => field.bodyWith(value) })),
        ...deepValues.map((value) => ({
          name: value.name,
          parse: () => parseJson(hostileBody(field.bodyWith, value), "The body"),
        })),
      ];
      for (const { name, parse } of bodies) {
        const error = refusalOf(route, parse);
        expect([name, error?.status]).toEqual([name, 400]);
        expect(error!.message.length).toBeLessThan(1000);
        expect([name, topOf(error!.parameter)]).toEqual([name, topOf(field.path)]);
      }
    });
  }
});

describe("a list", () => {
  /** A list that counts how many of its elements are read. */
  function countedList(
    element: unknown,
    length = 2_000_000,
  ): { readonly list: unknown; readonly numReads: () => number } {
    let numReads = 0;
    const list: unknown = new Proxy([], {
      get(target, key, receiver) {
        if (key === "length") return length;
        if (typeof key !== "string" || !/^\d+$/.test(key)) return Reflect.get(target, key, receiver) as unknown;
        numReads += 1;
        return element;
      },
      has: (target, key) => (typeof key === "string" && /^\d+$/.test(key)) || Reflect.has(target, key),
    });
    return { list, numReads: () => numReads };
  }

  /** Parses a body with such a list in this place. */
  function parse(schema: z.ZodType, field: SchemaField, element: unknown, length: number) {
    const { list, numReads } = countedList(element, length);
    try {
      parseFields(schema, field.bodyWith(list));
      return null;
    } catch (error) {
      const { issues } = (error as HttpError).cause as z.ZodError;
      return { numReads: numReads(), numIssues: issues.length };
    }
  }

  const few = expect.toSatisfy((count) => count < 10, "few");

  for (const [{ path, schema }, fields] of distinctFields) {
    test.for(fields)(`is not read by ${path} when it is too long at $path`, (field) => {
      for (const element of [-1, 1, "a", {}, null]) {
        expect([element, parse(schema, field, element, 2_000_000)]).toEqual([
          element,
          { numReads: few, numIssues: few },
        ]);
      }
    });

    // In options, arguments and JSON Schemas any short list passes.
    const anyList =
      /^(mm_processor|media_io|chat_template)_kwargs\.\*$|\.arguments\.\*$|\.(json|schema|parameters|value)(\.\*)?$/;
    test.for(fields.filter((field) => !anyList.test(field.path)))(
      `is read by ${path} up to its first bad element at $path`,
      (field) => {
        for (const element of [{}, null]) {
          expect([element, parse(schema, field, element, 60)]).toEqual([element, { numReads: few, numIssues: few }]);
        }
      },
    );
  }

  test("is read to its end by a schema that does not stop, so the count is able to fail", () => {
    const { list, numReads } = countedList(-1, 1000);
    expect(z.array(z.number().min(0)).safeParse(list).error?.issues).toHaveLength(1000);
    expect(numReads()).toBe(1000);
  });
});

describe("odd values", () => {
  const { post, bodies } = createTestApp();
  afterAll(() => bodies.close());

  for (const [{ path }, fields] of distinctFields.filter(([route]) => route !== batches)) {
    const isAnthropic = path.startsWith(messages.path);
    test.for(fields)(`at $path are answered by ${path}, or rejected in the format of its clients`, async (field) => {
      for (const value of oddValues) {
        const response = await post(path, hostileBody(field.bodyWith, value));
        const isStream = response.headers.get("content-type")?.startsWith("text/event-stream");
        // Responses have a null where an error would be.
        const { error } = (isStream ? {} : await response.json()) as { readonly error?: object | null };
        const isRefused = [400, 404].includes(response.status);
        expect([value.name, response.status]).toEqual([value.name, isRefused ? response.status : 200]);
        const expected = isAnthropic ? anthropicError : openAiError;
        expect([value.name, error ?? undefined]).toEqual([value.name, isRefused ? expected : undefined]);
      }
    });
  }

  const anthropicError = {
    type: expect.stringMatching(/^(invalid_request_error|not_found_error)$/),
    message: expect.stringMatching(/^.{1,700}$/s),
  };
  const openAiError = {
    message: expect.stringMatching(/^.{1,700}$/s),
    type: "invalid_request_error",
    param: expect.toSatisfy((param) => param === null || typeof param === "string"),
    code: expect.stringMatching(/^\w+$/),
  };
});

test.for(routes.slice(0, 2))("a batch line is rejected like the body of $path", ({ path, schema }) => {
  const field = fieldsOf(schema)[0]!.find((found) => found.path === "allowed_token_ids")!;
  const lineWith = (value: unknown) => ({ custom_id: "a", method: "POST", url: path, body: field.bodyWith(value) });
  for (const value of deepValues) {
    const line = parseBatchLine({ lineNumber: 1, text: hostileBody(lineWith, value), problem: null });
    expect([value.name, line.kind]).toEqual([value.name, "bad"]);
  }
});

test.for(["", "allowed_token_ids"])(
  "over HTTP each is rejected at %j, and a request beside it is answered",
  async (path) => {
    const { post, bodies, engine } = createTestApp({ config: { maxBodyBytes: 32 * 1024 ** 2 } });
    const field = chatFields!.find((found) => found.path === path)!;
    for (const value of [...longValues, ...deepValues]) {
      const [refused, beside] = await Promise.all([
        post(chat.path, hostileBody(field.bodyWith, value)),
        post(chat.path, chatBody),
      ]);
      expect([value.name, refused.status, beside.status]).toEqual([value.name, 400, 200]);
      const { error } = (await refused.json()) as { readonly error: { readonly param: string | null } };
      expect(error.param ?? "").toMatch(path);
    }
    expect(engine.requests).toHaveLength(longValues.length + deepValues.length);
    await bodies.close();
  },
);
