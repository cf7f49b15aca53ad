/**
 * Runs a load of requests on node-llama-cpp in a process of its own and prints its figures as one line of JSON.
 * Usage: node llama-cpp-load.ts MODEL.gguf '{"threads":2,"promptTokens":256,"outputTokens":128,"clients":8,"requests":24,"vocabSize":49152}'
 *
 * Each client has a sequence of one context, whose batches the library forms of all sequences, with flash attention.
 */
import { getLlama, LlamaLogLevel } from "node-llama-cpp";
import type { Token } from "node-llama-cpp";

import { createPrompts, runLoad, type Load } from "../load/run-load.ts";

const [modelPath, optionsText] = process.argv.slice(2) as [string, string];
const options = JSON.parse(optionsText) as Load & { clients: number; threads: number; vocabSize: number };

const llama = await getLlama({
  gpu: false,
  build: "never",
  logLevel: LlamaLogLevel.error,
  maxThreads: options.threads,
});
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  contextSize: options.promptTokens + options.outputTokens + 16,
  sequences: options.clients,
  batchSize: 512,
  threads: { ideal: options.threads, min: options.threads },
  flashAttention: true,
});
const idle = Array.from({ length: options.clients }, () => context.getSequence());
const nextPrompt = createPrompts(options.promptTokens, options.vocabSize);

const figures = await runLoad(options, async (_, onTokens) => {
  const sequence = idle.pop();
  if (sequence === undefined) throw new Error("More requests than clients are under way.");
  await sequence.clearHistory();
  let left = options.outputTokens;
  for await (const _token of sequence.evaluate(nextPrompt() as Token[], { temperature: 0, yieldEogToken: true })) {
    onTokens(1);
    if (--left === 0) break;
  }
  idle.push(sequence);
});
console.log(JSON.stringify(figures));
await context.dispose();
await llama.dispose();
