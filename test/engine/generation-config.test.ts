/** What an engine takes from a checkpoint's generation_config.json beside sampling defaults. */
import { cp, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../engine/index.ts";
import { loadGoldens } from "../support/checkpoints/goldens.ts";
import { smallEngineConfig } from "../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

/** The greedy answer of a checkpoint with these fields, after a warm-up. */
async function answer(promptTokenIds: readonly number[], fields: object): Promise<readonly number[]> {
  await using temporary = await createTemporaryFolder();
  const folder = join(temporary.path, "checkpoint");
  await cp((await loadGoldens("llama")).checkpointFolder, folder, { recursive: true });
  await writeFile(join(folder, "generation_config.json"), JSON.stringify(fields));
  const config = { ...smallEngineConfig(folder, join(temporary.path, "cache")), warmUp: true };
  await using stack = new AsyncDisposableStack();
  const engine = createEngine(config, { imageSources: [] });
  stack.defer(() => engine.close());
  await engine.ready;
  const tokenIds: number[] = [];
  const request = {
    requestId: "greedy",
    prompt: { kind: "tokens", tokenIds: promptTokenIds },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 16, ignoreEos: true }),
  } as const;
  for await (const output of engine.generate(request)) tokenIds.push(...output.tokenIds);
  return tokenIds;
}

test("suppressed tokens are never generated, and tokens outside the vocabulary do not count", async () => {
  const { cases } = await loadGoldens("llama");
  const { promptTokenIds, greedyTokenIds } = cases[0]!;
  const outside = 10_000_000;
  const free = await answer(promptTokenIds, { eos_token_id: [outside, 1] });
  expect(free).toEqual(greedyTokenIds.slice(0, 16));
  const suppressed = [...new Set(free.slice(0, 4))];
  const steered = await answer(promptTokenIds, { eos_token_id: 1, suppress_tokens: [...suppressed, outside, -1] });
  expect(steered).toHaveLength(16);
  expect(steered.filter((tokenId) => suppressed.includes(tokenId))).toEqual([]);
});

test("suppressed sequences and tokens at the start are avoided where they count", async () => {
  const { cases } = await loadGoldens("llama");
  const { promptTokenIds, greedyTokenIds } = cases[0]!;
  const [first, second] = greedyTokenIds as [number, number];
  const other = await answer(promptTokenIds, { eos_token_id: 1, begin_suppress_tokens: [first] });
  expect(other).toHaveLength(16);
  expect(other[0]).not.toBe(first);
  const apart = await answer(promptTokenIds, { eos_token_id: 1, bad_words_ids: [[first, second]] });
  expect(apart[0]).toBe(first);
  expect(apart[1]).not.toBe(second);
  // The second token may be first.
  const later = await answer(promptTokenIds, { eos_token_id: 1, begin_suppress_tokens: [second] });
  expect(later).toEqual(greedyTokenIds.slice(0, 16));
});
