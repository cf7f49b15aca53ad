/** The metrics of a paged KV cache, as a scraper reads them from a service whose blocks are too few. */
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { goldensFolder } from "../support/checkpoints/goldens.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const blockSize = 16;
const maxModelLen = 192;
/** The fewest: one sequence of full length, and the scratch block. */
const numBlocks = maxModelLen / blockSize + 1;

let cache: TemporaryFolder;
let service: RunningService;

beforeAll(async () => {
  cache = await createTemporaryFolder();
  service = await startService({
    MODEL: join(goldensFolder, "llama"),
    CACHE_FOLDER: cache.path,
    DTYPE: "float32",
    KV_LAYOUT: "paged",
    BLOCK_SIZE: `${blockSize}`,
    NUM_GPU_BLOCKS_OVERRIDE: `${numBlocks}`,
    ENFORCE_EAGER: "true",
    MAX_MODEL_LEN: `${maxModelLen}`,
    MAX_NUM_SEQS: "4",
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await cache[Symbol.asyncDispose]();
});

interface Counters {
  readonly queries: number;
  readonly hits: number;
  readonly preemptions: number;
}

async function readMetrics(): Promise<string> {
  return (await fetch(`${service.baseUrl}/metrics`)).text();
}

async function readCounters(): Promise<Counters> {
  const text = await readMetrics();
  const valueOf = (name: string): number => Number(new RegExp(`^vllm:${name}\\{.*\\} (\\S+)$`, "m").exec(text)![1]);
  return {
    queries: valueOf("prefix_cache_queries_total"),
    hits: valueOf("prefix_cache_hits_total"),
    preemptions: valueOf("num_preemptions_total"),
  };
}

/** Returns the number of tokens of all prompts' completions. */
async function complete(prompt: readonly (readonly number[])[], maxTokens: number): Promise<number> {
  const response = await fetch(`${service.baseUrl}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ prompt, max_tokens: maxTokens, ignore_eos: true, temperature: 0 }),
  });
  const { usage } = (await response.json()) as { readonly usage: { readonly completion_tokens: number } };
  return usage.completion_tokens;
}

const promptOf = (first: number): number[] => Array.from({ length: 40 }, (_, index) => 5 + ((first + index * 7) % 300));

test("NUM_GPU_BLOCKS_OVERRIDE and BLOCK_SIZE are the size of the cache", async () => {
  const [line] = /^vllm:cache_config_info\{.*$/m.exec(await readMetrics())!;
  expect(line).toContain(`block_size="${blockSize}"`);
  expect(line).toContain(`num_gpu_blocks="${numBlocks}"`);
});

test("tokens that are looked up and reused are counted for each prompt, and preemptions as they happen", async () => {
  const before = await readCounters();
  expect(await complete([promptOf(0)], 4)).toBe(4);
  const first = await readCounters();
  expect(first).toEqual({ ...before, queries: before.queries + 40 });
  expect(await complete([promptOf(0)], 4)).toBe(4);
  const again = await readCounters();
  expect(again).toEqual({ ...first, queries: first.queries + 40, hits: first.hits + 32 });
  // Each needs nine of twelve blocks at its end. None has a prefix of another.
  expect(await complete([1, 2, 3, 4].map(promptOf), 100)).toBe(400);
  const crowded = await readCounters();
  expect(crowded.preemptions).toBeGreaterThan(again.preemptions);
  expect(crowded).toMatchObject({ queries: again.queries + 160, hits: again.hits });
});
