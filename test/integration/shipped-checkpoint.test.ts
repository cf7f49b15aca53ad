import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { afterAll, beforeAll, expect, test } from "vitest";

import { loadGoldens, pictureReference } from "../support/checkpoints/goldens.ts";
import type { GoldenCase, GoldenMessage } from "../support/checkpoints/goldens.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";

const examplesFolder = fileURLToPath(new URL("../../models/fovea-shapes/examples/", import.meta.url));

interface Example {
  readonly image: string;
  readonly question: string;
  readonly answer: string;
}

let service: RunningService;
let client: OpenAI;

beforeAll(async () => {
  service = await startService({});
  client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none" });
});

afterAll(() => service[Symbol.asyncDispose]());

async function loadExamples(): Promise<Example[]> {
  const lines = (await readFile(join(examplesFolder, "questions.jsonl"), "utf8")).trim().split("\n");
  return lines.map((line) => JSON.parse(line) as Example);
}

async function askExample({ image, question }: Example): Promise<string> {
  const bytes = await readFile(join(examplesFolder, image));
  const stream = await client.chat.completions.create({
    model: "fovea-shapes",
    stream: true,
    messages: [
      {
        role: "user",
        content: [
          { type: "image_url", image_url: { url: `data:image/png;base64,${bytes.toString("base64")}` } },
          { type: "text", text: question },
        ],
      },
    ],
  });
  let answer = "";
  for await (const chunk of stream) answer += chunk.choices[0]?.delta.content ?? "";
  return answer;
}

test("every question about the example pictures is answered correctly, sequentially and concurrently", async () => {
  const examples = await loadExamples();
  const expected = examples.map(({ answer }) => answer);
  const answers: string[] = [];
  for (const example of examples) answers.push(await askExample(example));
  expect(answers).toEqual(expected);
  expect(await Promise.all(examples.map(askExample))).toEqual(expected);
});

async function toWireMessage({ role, content }: GoldenMessage, pictures: string[]): Promise<object> {
  const parts = content.map(async (part) =>
    part.type === "text" ? part : { type: "image_url", image_url: { url: await pictureReference(pictures.shift()!) } },
  );
  return { role, content: await Promise.all(parts) };
}

/** Prompt length and text of the golden's greedy tokens, in the service's form. */
async function completeGolden({ messages, pictures, greedyTokenIds }: GoldenCase) {
  const remaining = [...pictures];
  const answer = await client.chat.completions.create({
    model: "fovea-shapes",
    messages: await Promise.all(messages.map((message) => toWireMessage(message, remaining))),
    // Not one of OpenAI's fields, so the client's types lack it.
    ignore_eos: true,
    temperature: 0,
    max_completion_tokens: greedyTokenIds.length,
    logprobs: true,
  } as OpenAI.ChatCompletionCreateParamsNonStreaming);
  return {
    promptTokens: answer.usage?.prompt_tokens,
    tokens: answer.choices[0]!.logprobs?.content?.map(({ token }) => token),
  };
}

test("prompts have the length and answers the tokens of transformers, with 0, 1 and 3 images", async () => {
  const { cases, checkpointFolder } = await loadGoldens("fovea-shapes");
  const { model, added_tokens: addedTokens } = JSON.parse(
    await readFile(join(checkpointFolder, "tokenizer.json"), "utf8"),
  ) as { model: { vocab: Record<string, number> }; added_tokens: { id: number; content: string }[] };
  const spelling = new Map(Object.entries(model.vocab).map(([token, id]) => [id, token.replace(/^Ġ/, " ")]));
  for (const { id, content } of addedTokens) spelling.set(id, content);
  expect(cases.map(({ pictures }) => pictures.length)).toEqual([0, 1, 3]);
  const answers = await Promise.all(cases.map(completeGolden));
  expect(answers).toEqual(
    cases.map(({ promptTokenIds, greedyTokenIds }) => ({
      promptTokens: promptTokenIds.length,
      tokens: greedyTokenIds.map((id) => spelling.get(id)),
    })),
  );
});
