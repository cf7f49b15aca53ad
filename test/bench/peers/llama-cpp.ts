/**
 * Measures node-llama-cpp on a GGUF file in a process of its own and prints one line of JSON.
 * Usage: node llama-cpp.ts MODEL.gguf '{"threads":2,"prefillTokens":512,"decodeTokens":48,"contextTokens":256,"concurrency":[1,8,32]}'
 *
 * What it does for llama.cpp's best: its release build for this processor with repacked weights, a context per sequence
 * (not one shared by all), a prompt in one batch, each figure with and without flash attention and the better one
 * counted, nothing timed before it ran once. Greedy sampling is in the time, as it is in ours.
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

interface ContextOptions {
  readonly numSequences: number;
  /** Tokens of one sequence. */
  readonly contextSize: number;
  readonly flashAttention: boolean;
}

async function withSequences<Result>(
  { numSequences, contextSize, flashAttention }: ContextOptions,
  work: (sequences: LlamaContextSequence[]) => Promise<Result>,
): Promise<Result> {
  const context = await model.createContext({
    contextSize,
    sequences: numSequences,
    batchSize: Math.max(512, options.prefillTokens),
    threads: { ideal: options.threads, min: options.threads },
    flashAttention,
  });
  try {
    return await work(Array.from({ length: numSequences }, () => context.getSequence()));
  } finally {
    await context.dispose();
  }
}

/** Prompt tokens per second of one sequence. */
async function prefill(flashAttention: boolean): Promise<number> {
  const contextSize = options.prefillTokens + 16;
  return withSequences({ numSequences: 1, contextSize, flashAttention }, async ([sequence]) => {
    await sequence!.evaluateWithoutGeneratingNewTokens(prompt(options.prefillTokens, 1));
    await sequence!.clearHistory();
    const startMs = performance.now();
    await sequence!.evaluateWithoutGeneratingNewTokens(prompt(options.prefillTokens, 2));
    return (options.prefillTokens * 1000) / (performance.now() - startMs);
  });
}

/** Generated tokens per second of all sequences together, after every prompt is in the context. */
async function decode(numSequences: number, flashAttention: boolean): Promise<number> {
  const contextSize = options.contextTokens + options.decodeTokens + 16;
  return withSequences({ numSequences, contextSize, flashAttention }, async (sequences) => {
    await Promise.all(
      sequences.map((sequence, index) =>
        sequence.evaluateWithoutGeneratingNewTokens(prompt(options.contextTokens, index)),
      ),
    );
    const generations = sequences.map((sequence) =>
      sequence.evaluate([300 as Token], { temperature: 0, yieldEogToken: true }),
    );
    // All continue together: otherwise sequences miss the next batch when their token was sampled last.
    const step = (): Promise<unknown> => Promise.all(generations.map((generation) => generation.next()));
    await step();
    const startMs = performance.now();
    for (let index = 0; index < options.decodeTokens; index++) await step();
    const elapsedMs = performance.now() - startMs;
    await Promise.all(generations.map((generation) => generation.return()));
    return (numSequences * options.decodeTokens * 1000) / elapsedMs;
  });
}

async function bestOfBoth(name: string, measure: (flashAttention: boolean) => Promise<number>): Promise<number> {
  const withFlash = await measure(true);
  const without = await measure(false);
  console.error(`  ${name}: ${withFlash.toFixed(1)} tok/s with flash attention, ${without.toFixed(1)} without`);
  return Math.max(withFlash, without);
}

const prefillTokensPerSecond = await bestOfBoth("prefill", prefill);
const decodeTokensPerSecond: Record<number, number> = {};
for (const count of options.concurrency) {
  decodeTokensPerSecond[count] = await bestOfBoth(`decode at ${count}`, (flashAttention) =>
    decode(count, flashAttention),
  );
}
console.log(JSON.stringify({ prefillTokensPerSecond, decodeTokensPerSecond }));
await llama.dispose();
