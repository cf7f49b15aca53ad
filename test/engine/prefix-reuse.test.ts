import { afterAll, beforeAll, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../engine/index.ts";
import type { ChatMessage, Engine, GenerationRequest, ImagePart, RequestOutput } from "../../engine/index.ts";
import { pictureReference } from "../support/checkpoints/goldens.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
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

test("a repeated prompt reuses all but its last token, only under its own salt", async () => {
  const messages = [question("What is in the picture?")];
  const [first] = await ask(messages, { cacheSalt: "one" });
  expect(first!.numCachedTokens).toBe(0);
  const [again] = await ask(messages, { cacheSalt: "one" });
  expect(again!.numCachedTokens).toBe(first!.numPromptTokens - 1);
  const [other] = await ask(messages, { cacheSalt: "two" });
  expect(other!.numCachedTokens).toBe(0);
  const [unsalted] = await ask(messages);
  expect(unsalted!.numCachedTokens).toBe(0);
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
  const second = (await ask(turn))[0]!;
  // The question's last tokens may differ when an answer follows.
  expect(second.numCachedTokens).toBeGreaterThan(outputs[0]!.numImageTokens);
  expect(second.numCachedTokens).toBeLessThan(second.numPromptTokens);
});

test("choices of one prompt compute it once", async () => {
  const outputs = await ask([question("Write three words about it, thrice over.")], { numChoices: 3 });
  const cachedOf = (index: number) => outputs.find((output) => output.index === index)?.numCachedTokens;
  const { numPromptTokens } = outputs[0]!;
  expect([cachedOf(0)! < numPromptTokens - 1, cachedOf(1), cachedOf(2)]).toEqual([
    true,
    numPromptTokens - 1,
    numPromptTokens - 1,
  ]);
});

test("a model with three-axis positions continues a reused picture prefix with the same tokens as without reuse", async () => {
  const start = async (enablePrefixCaching: boolean): Promise<Engine> => {
    const config = { ...goldenEngineConfig("qwen2-vl", cache.path), enablePrefixCaching };
    const engine = createEngine(config, { imageSources: [createDataUrlImageSource()] });
    await engine.ready;
    return engine;
  };
  const [reusing, computing] = await Promise.all([start(true), start(false)]);
  const [beginOfPicture, pictureToken, endOfPicture] = [4, 2, 5];
  const placeOfPicture = [beginOfPicture, pictureToken, endOfPicture];
  const words = Array.from({ length: 300 }, (_, index) => 20 + index);
  const generate = async (of: Engine, tokenIds: readonly number[], images: readonly ImagePart[]) => {
    const outputs: RequestOutput[] = [];
    const samplingParams = createSamplingParams({ temperature: 0, maxTokens: 12, allowedTokenIds: words });
    const prompt = { kind: "tokens", tokenIds, images } as const;
    for await (const output of of.generate({ requestId: `axes-${numRequests++}`, prompt, samplingParams })) {
      outputs.push(output);
    }
    const { numCachedTokens, numPromptTokens } = outputs[0]!;
    return { tokenIds: outputs.flatMap((output) => output.tokenIds), numCachedTokens, numPromptTokens };
  };
  try {
    // Wider than high and higher than wide, so that the text after each continues after its longer edge.
    const [wide, high] = await Promise.all(["drawing.png", "photo.png"].map(pictureReference));
    const first: ImagePart[] = [
      { type: "image", reference: wide! },
      { type: "image", reference: high! },
    ];
    const question = [301, ...placeOfPicture, 306, 227, ...placeOfPicture, 318, 37];
    const answer = await generate(reusing, question, first);
    expect(answer.tokenIds).toEqual((await generate(computing, question, first)).tokenIds);

    const followUp = [...question, ...answer.tokenIds, 302, ...placeOfPicture, 264, 37];
    const images = [...first, first[0]!];
    const continued = await generate(reusing, followUp, images);
    const computed = await generate(computing, followUp, images);
    expect(continued.tokenIds).toEqual(computed.tokenIds);
    expect([continued.numCachedTokens, computed.numCachedTokens]).toEqual([
      answer.numPromptTokens + answer.tokenIds.length - 1,
      0,
    ]);
    // Another prompt that differs from the first after its pictures.
    const otherEnd = [...question.slice(0, -2), 90, 91];
    const cut = await generate(reusing, otherEnd, first);
    expect(cut.tokenIds).toEqual((await generate(computing, otherEnd, first)).tokenIds);
    expect(cut.numCachedTokens).toBeGreaterThan(0);
  } finally {
    await Promise.all([reusing.close(), computing.close()]);
  }
});
