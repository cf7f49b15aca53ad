/** Texts and bytes that queues hand out, as messages. */
import { expect, test } from "vitest";

import { parseMessage } from "../../../functions/jobs/job-message.ts";

test.for([
  ["is in another encoding", Buffer.from('{"prompt": "\u00e9"}', "latin1"), /^The message is not UTF-8\.$/],
  ["ends in the middle of a character", Buffer.from('{"prompt": "\u00e9"}').subarray(0, 13), /is not UTF-8/],
  ["is in UTF-16", Buffer.from('{"prompt": "a"}', "utf16le"), /is not valid JSON/],
  ["has a NUL", '{"prompt": "\u0000"}', /is not valid JSON at character 12/],
  ["has a number that is none", '{"prompt": "a", "temperature": NaN}', /is not valid JSON\.$/],
  [
    "has a custom_id of 1,025 characters",
    JSON.stringify({ custom_id: "x".repeat(1025), body: {} }),
    /^custom_id must have at most 1024/,
  ],
] as const)("a message that %s is refused with the reason", ([, body, reason]) => {
  const parsed = parseMessage("job", body);
  expect(parsed.kind === "bad" && parsed.refusal.message).toMatch(reason);
});

test.for([
  ["a byte order mark before text", '\ufeff{"prompt": "a"}'],
  ["a byte order mark before bytes", Buffer.from('\ufeff{"prompt": "a"}')],
  ["a name twice, whose last value counts", '{"prompt": "b", "prompt": "a"}'],
] as const)("a message with %s is read", ([, body]) => {
  expect(parseMessage("job", body)).toMatchObject({ kind: "good", job: { line: { body: { prompt: "a" } } } });
});

test("a line without a custom_id gets the id of its job, however long that is", () => {
  const parsed = parseMessage("x".repeat(4000), '{"prompt": "a"}');
  expect(parsed).toMatchObject({ kind: "good", job: { line: { customId: "x".repeat(1024) } } });
});

test.for(["../../etc/passwd", "a\u0000b", "\ud800", "\u00e9", "e\u0301", "__proto__"])(
  "the custom_id %j stays as it is",
  (customId) => {
    const parsed = parseMessage("job", JSON.stringify({ custom_id: customId, body: { prompt: "a" } }));
    expect(parsed).toMatchObject({ kind: "good", job: { line: { customId } } });
  },
);

test("messages that are null leave the prompt of a text completion", () => {
  const parsed = parseMessage("job", JSON.stringify({ messages: null, prompt: "a" }));
  expect(parsed).toMatchObject({ kind: "good", job: { line: { url: "/v1/completions" } } });
});

test("a file whose output is its input is refused, because the results would replace it", () => {
  const parsed = parseMessage("job", '{"input": "s3://bucket/lines.jsonl", "output": "s3://bucket//lines.jsonl"}');
  expect(parsed).toMatchObject({
    kind: "bad",
    refusal: { message: "output is the same object as input, s3://bucket/lines.jsonl.", parameter: "output" },
  });
});

test.for(["s3://bucket/my lines.jsonl", "s3://bucket/a b/\u00fc?x=1#%20.jsonl"])(
  "a file may have the key of %s",
  (input) => {
    const parsed = parseMessage("job", JSON.stringify({ input, output: "s3://bucket/out.jsonl" }));
    expect(parsed).toMatchObject({ kind: "good", job: { input: { bucket: "bucket", key: input.slice(12) } } });
  },
);

test.for([
  [
    "a folder as output",
    { input: "s3://bucket/a", output: "s3://bucket/b/" },
    "output",
    /must be s3:\/\/bucket\/key of a/,
  ],
  ["a bucket as input", { input: "s3://bucket", output: "s3://bucket/b" }, "input", /must be s3:\/\/bucket\/key of a/],
  ["the body of a response", { input: "How many shapes?" }, "input", /"url": "\/v1\/responses"/],
] as const)("a message with %s is refused, and the reason says what to send", ([, message, parameter, reason]) => {
  expect(parseMessage("job", JSON.stringify(message))).toMatchObject({
    kind: "bad",
    refusal: { message: expect.stringMatching(reason) as string, parameter },
  });
});
