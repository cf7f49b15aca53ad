import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { TargetToken } from "../../examples/steering/target-token.ts";
import { WrappedTargetToken } from "../../examples/steering/wrapped-target-token.ts";
import { testLogitsProcessor } from "../contracts/logits-processor.ts";
import { engineConfig } from "../engine/sampling/create-sampler.ts";
import { startReadyCli } from "../support/service/ready-cli.ts";
import type { ReadyCli } from "../support/service/ready-cli.ts";

const examples = fileURLToPath(new URL("../../examples", import.meta.url));

describe.for([
  ["steering.target-token:TargetToken", TargetToken],
  ["steering.wrapped-target-token:WrappedTargetToken", WrappedTargetToken],
] as const)("%s", ([name, processorClass]) => {
  let service: ReadyCli;
  let client: OpenAI;

  beforeAll(async () => {
    service = await startReadyCli({
      LOGITS_PROCESSORS: name,
      LOGITS_PROCESSOR_PATH: examples,
    });
    client = new OpenAI({ baseURL: `${service.baseUrl}/v1`, apiKey: "none", maxRetries: 0 });
  });

  afterAll(() => service[Symbol.asyncDispose]());

  testLogitsProcessor(processorClass.name, {
    create: () => new processorClass(engineConfig, "cpu", {}),
    using: [{ extraArgs: { target_token: 0 } }, { extraArgs: { target_token: 5 } }],
    notUsing: [{}, { extraArgs: { other: 1 } }],
  });

  async function complete(extraArguments: object, sampling: object = { temperature: 0 }): Promise<string> {
    const request = { model: "fovea-shapes", prompt: "a red circle", max_tokens: 4, ...sampling };
    const answer = await client.completions.create({ ...request, ...extraArguments });
    return answer.choices[0]!.text;
  }

  async function tokenText(tokenId: number): Promise<string> {
    const echoed = { prompt: [tokenId], echo: true, max_tokens: 0, model: "fovea-shapes" };
    return (await client.completions.create(echoed)).choices[0]!.text;
  }

  test("is listed in the log and over HTTP", async () => {
    expect((await service.cli.waitForLog("Ready.")).logitsProcessors).toEqual([name]);
    expect(await client.get("/logits-processors")).toEqual({
      object: "list",
      data: [{ id: name, object: "logits_processor" }],
    });
  });

  test("steers only the request that asks for it, greedy or drawn, in a shared batch", async () => {
    const free = await complete({});
    const steered = { vllm_xargs: { target_token: 67 }, ignore_eos: true };
    const expected = (await tokenText(67)).repeat(4);
    expect(free).not.toBe(expected);
    const texts = await Promise.all([complete(steered), complete({}), complete(steered, { temperature: 1, seed: 1 })]);
    expect(texts).toEqual([expected, free, expected]);
  });
});

test("the class of the first example rejects invalid token ids", () => {
  const refuse = (target: number | string) => () =>
    TargetToken.validateParams({ extraArgs: { target_token: target } } as never);
  expect(refuse("red")).toThrow('target_token must be a token id, got "red".');
  expect(refuse(-1)).toThrow("target_token must be a token id, got -1.");
  expect(refuse(0)).not.toThrow();
});
