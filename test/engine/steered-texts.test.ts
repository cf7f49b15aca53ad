/** The effect of sampling parameters on texts, through both threads, on the shipped checkpoint. */
import { afterAll, beforeAll, expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, SamplingParams, StructuredOutput } from "../../engine/index.ts";
import { loadGoldens } from "../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { engineConfig } from "./sampling/create-sampler.ts";
import { doublingGrammar } from "./structured-output/attacks.ts";

let cache: TemporaryFolder;
let engine: Engine;

beforeAll(async () => {
  cache = await createTemporaryFolder();
  const { checkpointFolder } = await loadGoldens("fovea-shapes");
  const limits = { maxNumSequences: 8, maxNumBatchedTokens: 128, maxNumWaiting: 64 };
  const config = { ...engineConfig, ...limits, model: checkpointFolder, cacheFolder: cache.path };
  engine = createEngine(config, { imageSources: [] });
  await engine.ready;
});

afterAll(async () => {
  await engine.close();
  await cache[Symbol.asyncDispose]();
});

let numRequests = 0;

async function generate(params: Partial<SamplingParams>): Promise<{ text: string; tokenIds: number[] }> {
  const request = {
    requestId: `steered-${numRequests++}`,
    prompt: { kind: "text", text: "a red circle", addSpecialTokens: true },
    samplingParams: createSamplingParams({ maxTokens: 24, seed: 1, ...params }),
  } as const;
  let text = "";
  const tokenIds: number[] = [];
  for await (const output of engine.generate(request)) {
    text += output.text;
    tokenIds.push(...output.tokenIds);
  }
  return { text, tokenIds };
}

const structuredOutputs: [StructuredOutput, RegExp][] = [
  [{ kind: "choice", choices: ["red", "green and blue"] }, /^(red|green and blue)$/],
  [{ kind: "regex", pattern: "[ab]{3}c" }, /^[ab]{3}c$/],
  [{ kind: "grammar", grammar: 'root ::= ("x" | "y")  "z"' }, /^[xy]z$/],
  [{ kind: "json-schema", schema: '{"type": "boolean"}' }, /^(true|false)$/],
];

test.for([0, 0.7, 2])(
  "structured outputs have their form at temperature %f, whatever runs beside them",
  async (temperature) => {
    const free = generate({ temperature, seed: 9 });
    const texts = await Promise.all(
      [...structuredOutputs, ...structuredOutputs].map(async ([structuredOutput, form], index) => {
        const { text } = await generate({ temperature, seed: index, structuredOutput });
        return { text, form };
      }),
    );
    for (const { text, form } of texts) expect(text).toMatch(form);
    expect((await free).text).toBe((await generate({ temperature, seed: 9 })).text);
  },
);

test("a complete structured output ends before min_tokens, and one that can continue does", async () => {
  const choice: StructuredOutput = { kind: "choice", choices: ["red"] };
  const complete = await generate({ minTokens: 20, structuredOutput: choice });
  expect(complete.text).toBe("red");
  expect(complete.tokenIds.length).toBeLessThan(20);
  const open: StructuredOutput = { kind: "regex", pattern: "[ab]+" };
  const { text, tokenIds } = await generate({ minTokens: 20, structuredOutput: open });
  expect(text).toMatch(/^[ab]+$/);
  expect(tokenIds.length).toBeGreaterThanOrEqual(20);
});

test("structured outputs built to be expensive do not stop the texts beside them", async () => {
  const red: StructuredOutput = { kind: "regex", pattern: "(red|green|blue)( (red|green|blue))*" };
  const alone = await generate({ temperature: 0, minTokens: 20, structuredOutput: red });
  const ambiguous: StructuredOutput = { kind: "grammar", grammar: "root ::= root root root | [a-z ]?" };
  const hostile = [doublingGrammar, doublingGrammar, ambiguous, ambiguous].map((structuredOutput, seed) =>
    generate({ structuredOutput, seed, minTokens: 400, maxTokens: 400 }),
  );
  const [beside, ...outcomes] = await Promise.allSettled([
    generate({ temperature: 0, minTokens: 20, structuredOutput: red }),
    ...hostile,
  ]);
  expect(beside).toEqual({ status: "fulfilled", value: alone });
  expect(outcomes.map(({ status }) => status)).toEqual(["fulfilled", "fulfilled", "rejected", "rejected"]);
  for (const outcome of outcomes.slice(2)) {
    expect(outcome).toMatchObject({
      reason: {
        code: "invalid_argument",
        message: expect.stringContaining('root ::= root root root | [a-z ]?" is too expensive to follow'),
      },
    });
  }
});

test("logprobs of a structured output are computed among the tokens its grammar allows", async () => {
  const { samplingParams, ...request } = {
    requestId: "scored",
    prompt: { kind: "text", text: "a", addSpecialTokens: true },
    samplingParams: createSamplingParams({
      temperature: 0,
      logprobs: 20,
      structuredOutput: { kind: "regex", pattern: "[ab]" },
    }),
  } as const;
  for await (const { logprobs } of engine.generate({ ...request, samplingParams })) {
    for (const { top } of logprobs ?? []) {
      const possible = top.filter(({ logprob }) => logprob > -9999);
      expect(possible.length).toBeLessThan(20);
      expect(possible.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0)).toBeCloseTo(1, 5);
    }
  }
});

test("only allowed tokens occur, bad words never occur, and biased tokens occur", async () => {
  const { tokenIds: free, text } = await generate({ temperature: 0 });
  const allowedTokenIds = [free[0]!, free[0]! + 1, free[0]! + 2];
  const { tokenIds } = await generate({ allowedTokenIds, ignoreEos: true });
  for (const tokenId of tokenIds) expect(allowedTokenIds).toContain(tokenId);
  const [firstWord] = text.trim().split(/\s+/);
  const { text: without } = await generate({ temperature: 0, badWords: [firstWord!] });
  expect(without.split(/\s+/)).not.toContain(firstWord);
  expect((await generate({ logitBias: { 7: 100 }, ignoreEos: true, maxTokens: 4 })).tokenIds).toEqual([7, 7, 7, 7]);
});

test("no token occurs twice when a presence penalty outweighs the model's preference", async () => {
  const allowedTokenIds = [10, 11, 12, 13, 14, 15];
  const { tokenIds } = await generate({
    temperature: 0,
    allowedTokenIds,
    frequencyPenalty: 2,
    presencePenalty: 2,
    repetitionPenalty: 1e6,
    maxTokens: 6,
    ignoreEos: true,
  });
  expect(new Set(tokenIds).size).toBe(tokenIds.length);
});
