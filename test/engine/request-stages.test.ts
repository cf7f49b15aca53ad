/** The stages that a request reports, compared with its outputs. */
import { expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../engine/index.ts";
import type { Engine, RequestStage, SamplingParams } from "../../engine/index.ts";
import { goldenEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const numChoices = 4;

/** The texts of the choices, the number of their tokens, and the number that the stage of decoding has. */
async function generate(engine: Engine, requestId: string, params: Partial<SamplingParams>) {
  const stages: RequestStage[] = [];
  const texts: string[] = [];
  let numTokens = 0;
  const outputs = engine.generate({
    requestId,
    prompt: { kind: "text", text: "Describe the picture.", addSpecialTokens: true },
    samplingParams: createSamplingParams({ temperature: 1, seed: 5, maxTokens: 100, ignoreEos: true, ...params }),
    numChoices,
    onStage: (stage) => stages.push(stage),
  });
  for await (const { index, text, tokenIds } of outputs) {
    texts[index] = (texts[index] ?? "") + text;
    numTokens += tokenIds.length;
  }
  const decode = stages.find(({ name }) => name === "decode");
  return { texts, numTokens, numReported: decode?.attributes?.["gen_ai.usage.output_tokens"] };
}

test("tokens that are computed after a stop string are not counted", async () => {
  await using cache = await createTemporaryFolder();
  const engine = createEngine(goldenEngineConfig("llama", cache.path));
  try {
    await engine.ready;
    const whole = await generate(engine, "whole", {});
    expect(whole).toMatchObject({ numTokens: numChoices * 100, numReported: numChoices * 100 });
    // All choices but the last end early, while the last one continues.
    const stop = whole.texts.slice(0, -1).map((text) => text.slice(20, 30));
    const stopped = await generate(engine, "stopped", { stop });
    expect(stopped.texts.map((text, index) => whole.texts[index]!.startsWith(text))).toEqual([true, true, true, true]);
    expect(stopped.texts.at(-1)).toBe(whole.texts.at(-1));
    expect(stopped.numTokens).toBeLessThan(300);
    expect(stopped.numReported).toBe(stopped.numTokens);
  } finally {
    await engine.close();
  }
});
