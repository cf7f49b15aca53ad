/**
 * Measures node-llama-cpp on a GGUF file in a process of its own and prints one line of JSON.
 * Usage: node llama-cpp.ts MODEL.gguf '{"threads":2,"prefillTokens":512,"decodeTokens":48,"contextTokens":256,"concurrency":[1,8,32]}'
 */
import { getLlama, LlamaLogLevel } from "node-llama-cpp";
import type { LlamaContextSequence, Token } from "node-llama-cpp";

interface Options {
  readonly threads: number;
  readonly prefillTokens: number;
  readonly decodeTokens: number;
  readonly contextTokens: number;
  readonly concurrency: readonly number[];
}

const [modelPath, optionsText] = process.argv.slice(2) as [string, string];
const options = JSON.parse(optionsText) as Options;

const prompt = (length: number, salt: number): Token[] =>
  Array.from({ length }, (_, index) => (300 + ((index * 37 + salt * 101) % 40_000)) as Token);

const llama = await getLlama({
  gpu: false,
  build: "never",
  logLevel: LlamaLogLevel.error,
  maxThreads: options.threads,
});
const model = await llama.loadModel({ modelPath });

async function withSequences<Result>(count: number, work: (sequences: LlamaContextSequence[]) => Promise<Result>) {
  const context = await model.createContext({
    contextSize: options.contextTokens + options.prefillTokens + options.decodeTokens + 16,
    sequences: count,
    batchSize: 512,
    threads: options.threads,
    flashAttention: true,
  });
  try {
    return await work(Array.from({ length: count }, () => context.getSequence()));
  } finally {
    await context.dispose();
  }
}

/** Tokens per second of one prompt. */
const prefill = await withSequences(1, async ([sequence]) => {
  await sequence!.evaluateWithoutGeneratingNewTokens(prompt(64, 1));
  await sequence!.clearHistory();
  const start = performance.now();
  await sequence!.evaluateWithoutGeneratingNewTokens(prompt(options.prefillTokens, 2));
  return (options.prefillTokens * 1000) / (performance.now() - start);
});

/** Generated tokens per second of all sequences together, after every prompt is in the context. */
async function decode(count: number): Promise<number> {
  return withSequences(count, async (sequences) => {
    await Promise.all(
      sequences.map((sequence, index) =>
        sequence.evaluateWithoutGeneratingNewTokens(prompt(options.contextTokens, index)),
      ),
    );
    const start = performance.now();
    await Promise.all(
      sequences.map(async (sequence) => {
        let generated = 0;
        for await (const _token of sequence.evaluate([300 as Token], { temperature: 0, yieldEogToken: true })) {
          if (++generated === options.decodeTokens) break;
        }
      }),
    );
    return (count * options.decodeTokens * 1000) / (performance.now() - start);
  });
}

const decodeTokensPerSecond: Record<number, number> = {};
for (const count of options.concurrency) decodeTokensPerSecond[count] = await decode(count);
console.log(JSON.stringify({ prefillTokensPerSecond: prefill, decodeTokensPerSecond }));
await llama.dispose();
