import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import { goldenEngineConfig } from "../support/engine-config.ts";
import { pictureReference } from "../support/goldens.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { ChatMessage, Engine, GenerationRequest, RequestOutput } from "../../engine/index.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

let cache: TemporaryFolder;
let engine: Engine;
let picture: string;

beforeAll(async () => {
  cache = await createTemporaryFolder();
  engine = createEngine(goldenEngineConfig("llava-default", cache.path), {
    imageSources: [createDataUrlImageSource()],
  });
  await engine.ready;
  picture = await pictureReference("drawing.png");
});

afterAll(async () => {
  await engine.close();
  await cache[Symbol.asyncDispose]();
});

let numRequests = 0;

async function ask(
  messages: readonly ChatMessage[],
  options: Pick<GenerationRequest, "cacheSalt" | "numChoices"> = {},
): Promise<RequestOutput[]> {
  const outputs: RequestOutput[] = [];
  const request: GenerationRequest = {
    requestId: `request-${numRequests++}`,
    prompt: { kind: "chat", messages, addGenerationPrompt: true },
    samplingParams: createSamplingParams({
      temperature: options.numChoices === undefined ? 0 : 1,
      seed: 7,
      maxTokens: 12,
    }),
    ...options,
  };
  for await (const output of engine.generate(request)) outputs.push(output);
  return outputs;
}

function question(text: string): ChatMessage {
  return {
    role: "user",
    content: [
      { type: "image", reference: picture },
      { type: "text", text },
    ],
  };
}

test("a prompt asked again reuses all but its last token, under its own salt only", async () => {
  const messages = [question("What is in the picture?")];
  const [first] = await ask(messages, { cacheSalt: "one" });
  expect(first.numCachedTokens).toBe(0);
  const [again] = await ask(messages, { cacheSalt: "one" });
  expect(again.numCachedTokens).toBe(first.numPromptTokens - 1);
  const [other] = await ask(messages, { cacheSalt: "two" });
  expect(other.numCachedTokens).toBe(0);
  const [unsalted] = await ask(messages);
  expect(unsalted.numCachedTokens).toBe(0);
});

test("the next turn of a conversation reuses the picture and the question", async () => {
  const messages = [question("Name a colour of it.")];
  const outputs = await ask(messages);
  const answer = outputs.map(({ text }) => text).join("");
  const turn = [
    ...messages,
    { role: "assistant", content: answer },
    { role: "user", content: "And another?" },
  ] as const;
  const [second] = await ask(turn);
  // The question's last tokens may be others where an answer follows.
  expect(second.numCachedTokens).toBeGreaterThan(outputs[0].numImageTokens);
  expect(second.numCachedTokens).toBeLessThan(second.numPromptTokens);
});

test("choices of one prompt compute it once", async () => {
  const outputs = await ask([question("Write three words about it, thrice over.")], { numChoices: 3 });
  const cachedOf = (index: number) => outputs.find((output) => output.index === index)?.numCachedTokens;
  const { numPromptTokens } = outputs[0];
  expect([cachedOf(0)! < numPromptTokens - 1, cachedOf(1), cachedOf(2)]).toEqual([
    true,
    numPromptTokens - 1,
    numPromptTokens - 1,
  ]);
});
