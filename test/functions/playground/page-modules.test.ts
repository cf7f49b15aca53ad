/** The page's computations without a browser: requests, spans of tokens, figures, code. */
import { execFile } from "node:child_process";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { describe, expect, test } from "vitest";

import { chatCompletionRequest } from "../../../functions/generation/schemas/chat-completion-request.ts";
import { Answer } from "../../../functions/playground/answer.js";
import { createChatRequest } from "../../../functions/playground/chat-request.js";
import { shortenPictures, toCode } from "../../../functions/playground/code-samples.js";
import { readEvents } from "../../../functions/playground/event-stream.js";
import { parseSettings } from "../../../functions/playground/settings-fields.js";
import { cutIntoSpans } from "../../../functions/playground/token-spans.js";
import { createTestApp, serveApp } from "../../support/service/test-app.ts";

const picture = { name: "dot.png", url: `data:image/png;base64,${"iVBORw0K".repeat(400)}` };
const request = createChatRequest({
  model: "tiny",
  systemPrompt: "Be brief.",
  history: [{ question: "What is this?", pictures: [picture], answer: "It's a dot." }],
  question: { question: "How many\nare there?", pictures: [] },
  fields: { temperature: 0, vllm_xargs: { target: ["a'b", 1] } },
});

test("a request contains the conversation in order, pictures before the question about them", () => {
  expect(request.messages).toEqual([
    { role: "system", content: "Be brief." },
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: picture.url } },
        { type: "text", text: "What is this?" },
      ],
    },
    { role: "assistant", content: "It's a dot." },
    { role: "user", content: "How many\nare there?" },
  ]);
  expect(chatCompletionRequest.safeParse(request).success).toBe(true);
});

describe("settings", () => {
  const none = {
    temperature: "",
    top_p: " ",
    max_tokens: "",
    seed: "",
    form: "text",
    structured_outputs: "",
    vllm_xargs: "",
    logprobs: false,
  } as const;

  test("that are left empty are not sent", () => {
    expect(parseSettings(none, 20)).toEqual({ fields: {}, problems: {} });
  });

  test("become fields that the server accepts", () => {
    const texts = { ...none, temperature: "0.7", top_p: ".9", max_tokens: "64", seed: "-3", logprobs: true } as const;
    const parsed = parseSettings({ ...texts, form: "choice", structured_outputs: "a\n\n b " }, 3);
    expect(parsed).toEqual({
      fields: {
        temperature: 0.7,
        top_p: 0.9,
        max_tokens: 64,
        seed: -3,
        structured_outputs: { choice: ["a", "b"] },
        logprobs: true,
        top_logprobs: 3,
      },
      problems: {},
    });
    expect(chatCompletionRequest.safeParse({ ...request, ...parsed.fields }).success).toBe(true);
  });

  test.for([
    [{ temperature: "warm" }, "temperature", "Enter a number."],
    [{ temperature: "Infinity" }, "temperature", "Enter a number."],
    [{ max_tokens: "1.5" }, "max_tokens", "Enter a whole number."],
    [{ vllm_xargs: "[1]" }, "vllm_xargs", 'Enter a JSON object: {"name": value}.'],
    [{ vllm_xargs: "{" }, "vllm_xargs", expect.stringContaining("JSON")],
    [{ form: "json" }, "structured_outputs", 'Enter a JSON object: {"name": value}.'],
    [{ form: "regex", structured_outputs: " " }, "structured_outputs", "Enter a regular expression."],
    [{ form: "choice", structured_outputs: "\n" }, "structured_outputs", "Enter the choices, one per line."],
  ] as const)("%j is invalid in %s", ([texts, field, message]) => {
    const { fields, problems } = parseSettings({ ...none, ...texts }, 20);
    expect(problems).toEqual({ [field]: message });
    expect(fields).toEqual({});
  });
});

describe("spans", () => {
  const token = (bytes: Uint8Array | string) => {
    const spelled = Buffer.from(bytes);
    return { token: spelled.toString(), logprob: -0.5, bytes: [...spelled], top_logprobs: [] };
  };
  const cut = (text: string, tokens: ReturnType<typeof token>[]) =>
    cutIntoSpans(text, tokens).map((span) => [span.text, span.tokens.length]);

  test("follow token borders; a token without text has no part", () => {
    expect(cut("A red circle", ["A", " red", " circle", "</s>"].map(token))).toEqual([
      ["A", 1],
      [" red", 1],
      [" circle", 1],
    ]);
  });

  test("never split a character", () => {
    const [first, second, third] = [Buffer.from("é"), Buffer.from("🟢"), Buffer.from("!")];
    const tokens = [first.subarray(0, 1), first.subarray(1), second.subarray(0, 3), second.subarray(3), third];
    expect(cut("é🟢!", tokens.map(token))).toEqual([
      ["é", 2],
      ["🟢", 2],
      ["!", 1],
    ]);
  });

  test("drop the leading space that the text of the first token lost", () => {
    expect(cut("Yes", [token(" Yes")])).toEqual([["Yes", 1]]);
  });

  test("cover all text, also where tokens do not spell it", () => {
    expect(cut("A circle", [token("A"), token(" square")])).toEqual([
      ["A", 1],
      [" circle", 0],
    ]);
    expect(cut("plain", [])).toEqual([["plain", 0]]);
  });
});

test("figures come from the clock and the server's counts", () => {
  const answer = new Answer(1000);
  const usage = (completion_tokens: number) => ({
    prompt_tokens: 70,
    completion_tokens,
    prompt_tokens_details: { cached_tokens: 5, multimodal_tokens: { image: 48, video: 16 } },
  });
  const chunk = (content: string, numTokens: number) => ({
    choices: [{ delta: { content }, logprobs: null, finish_reason: null }],
    usage: usage(numTokens),
  });
  expect(answer.figures).toBeNull();
  answer.add(chunk("", 0), 1010);
  expect(answer.figures).toMatchObject({ outputTokens: 0, timeToFirstTokenMs: null, tokensPerSecond: null });
  answer.add(chunk("A", 1), 1040);
  answer.add(chunk(" red", 2), 1050);
  expect(answer.figures).toMatchObject({ outputTokens: 2, tokensPerSecond: null });
  answer.add(chunk(" circle", 5), 1060);
  answer.add({ choices: [], usage: usage(5) }, 1200);
  expect(answer.text).toBe("A red circle");
  expect(answer.figures).toEqual({
    outputTokens: 5,
    promptTokens: 70,
    imageTokens: 48,
    videoTokens: 16,
    cachedTokens: 5,
    timeToFirstTokenMs: 40,
    timeToLastTokenMs: 60,
    tokensPerSecond: 200,
  });
});

test("events are read however the stream is split", async () => {
  const bytes = Buffer.from('data: {"a":"é"}\n\n: keep-alive\n\ndata: [DONE]\n\n');
  for (let size = 1; size < bytes.length; size++) {
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
      Uint8Array.from(bytes.subarray(index * size, (index + 1) * size)),
    );
    const events: string[] = [];
    for await (const event of readEvents(ReadableStream.from(chunks))) events.push(event);
    expect(events).toEqual(['{"a":"é"}', "[DONE]"]);
  }
});

describe("code", () => {
  const env = { PATH: process.env.PATH, API_KEY: "secret" };
  const runners = {
    async curl(code: string) {
      return (await promisify(execFile)("bash", ["-c", code], { env })).stdout;
    },
    async openai(code: string) {
      // Next to this file, so that it finds the client.
      const file = join(import.meta.dirname, `copied-${process.pid}.mjs`);
      await writeFile(file, code);
      try {
        return (await promisify(execFile)(process.execPath, [file], { env })).stdout;
      } finally {
        await rm(file);
      }
    },
  };

  test.for(["curl", "openai"] as const)("for %s sends the same request when it runs", async (kind) => {
    const testApp = createTestApp({ config: { apiKeys: ["secret"] } });
    await using served = await serveApp(testApp);
    const code = toCode(kind, request, { baseUrl: new URL(`${served.baseUrl}/`), needsKey: true });
    const output = await runners[kind](code);
    expect(output).toContain("Hel");
    const asked = testApp.engine.requests[0]!;
    expect(asked.samplingParams).toMatchObject({ temperature: 0, extraArgs: { target: ["a'b", 1] } });
    expect(JSON.stringify(asked.prompt)).toContain("It's a dot.");
    expect(JSON.stringify(asked.prompt)).toContain(picture.url);
  });

  test("shows long pictures shortened, and short ones in full", () => {
    const code = toCode("json", request, { baseUrl: new URL("http://localhost/"), needsKey: false });
    expect(shortenPictures(code)).toContain(`"url": "data:image/png;base64,iVBORw0KiVBORw0KiVBORw0K… (2.4 kB)"`);
    const short = `"data:image/gif;base64,R0lGODlhAQABAAAAACw="`;
    expect(shortenPictures(short)).toBe(short);
  });
});
