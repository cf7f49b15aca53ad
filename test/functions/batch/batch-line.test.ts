import { describe, expect, test } from "vitest";

import { duplicateOf, parseBatchLine } from "../../../functions/batch/batch-line.ts";

const body = { prompt: "a" };
const line = { custom_id: "first", method: "POST", url: "/v1/completions", body };

function parse(content: unknown) {
  const text = typeof content === "string" ? content : JSON.stringify(content);
  return parseBatchLine({ lineNumber: 7, text, problem: null });
}

test("a line in OpenAI's format is a request; extra_args next to the body are arguments for logits processors", () => {
  expect(parse(line)).toEqual({
    kind: "good",
    lineNumber: 7,
    customId: "first",
    url: "/v1/completions",
    body,
    extraArguments: {},
  });
  const extra_args = { target_token: 67, words: ["a", "b"], isOn: true };
  expect(parse({ ...line, extra_args })).toMatchObject({ kind: "good", extraArguments: extra_args });
  expect(parse({ ...line, extra_args: null })).toMatchObject({ kind: "good", extraArguments: {} });
});

test("only fields that no batch line may have are checked in the body", () => {
  const odd = { messages: 3, stream: false, whatever: [null] };
  expect(parse({ ...line, url: "/v1/chat/completions", body: odd })).toMatchObject({ kind: "good", body: odd });
});

describe("an invalid line gives its number and the reason", () => {
  test.for<[unknown, string, string | null]>([
    ["{", "it is not valid JSON at character 1.", null],
    ["[]", "it must be a JSON object.", null],
    ["3", "it must be a JSON object.", null],
    [{ ...line, custom_id: 3 }, "custom_id must be a string.", "custom_id"],
    [{ ...line, custom_id: "" }, "custom_id must not be empty.", "custom_id"],
    [{ ...line, custom_id: "x".repeat(1025) }, "custom_id must have at most 1024 characters.", "custom_id"],
    [{ ...line, custom_id: undefined }, "custom_id must be a string.", "custom_id"],
    [{ ...line, method: "GET" }, "method must be POST.", "method"],
    [
      { ...line, url: "/v1/moderations" },
      "url must be one of /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/rerank, /v1/score.",
      "url",
    ],
    [{ ...line, body: undefined }, "body must be an object.", "body"],
    [{ ...line, body: [] }, "body must be an object.", "body"],
    [
      { ...line, body: { ...body, stream: true } },
      "body.stream must be false: lines of a batch are not streamed.",
      "body.stream",
    ],
    [
      { ...line, body: { ...body, extra_args: {} } },
      "body.extra_args is not a field of the body; move it next to the body, or use vllm_xargs.",
      "body.extra_args",
    ],
    [{ ...line, extra_args: 3 }, "extra_args must be an object.", "extra_args"],
    [
      { ...line, extra_args: { target: [1, {}] } },
      "extra_args.target[1] must be a string, number or boolean.",
      "extra_args.target[1]",
    ],
  ])("%j", ([content, message, parameter]) => {
    expect(parse(content)).toMatchObject({
      kind: "bad",
      lineNumber: 7,
      message: `Line 7: ${message}`,
      parameter,
    });
  });

  test("under its custom_id if it has one", () => {
    expect(parse({ ...line, method: "GET" })).toMatchObject({ customId: "first" });
    expect(parse({ custom_id: 3 })).toMatchObject({ customId: null });
    expect(parse("null")).toMatchObject({ customId: null });
  });

  test("also if it could not be read or has another line's id", () => {
    const problem = { code: "line_too_long", message: "it is long." } as const;
    expect(parseBatchLine({ lineNumber: 2, text: "", problem })).toMatchObject({
      code: "line_too_long",
      message: "Line 2: it is long.",
    });
    const good = parse(line);
    if (good.kind !== "good") throw new Error(good.message);
    expect(duplicateOf(good, 3)).toMatchObject({
      code: "duplicate_custom_id",
      message: 'Line 7: custom_id is also that of line 3, "first".',
    });
  });
});
