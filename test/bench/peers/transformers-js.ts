/**
 * Measures transformers.js on a model folder in a process of its own and prints one line of JSON.
 * Usage: node transformers-js.ts FOLDER '{"dtype":"q4","threads":2,"decodeTokens":48,"promptTokenIds":[300,337,374]}'
 */
import { basename, dirname } from "node:path";
import { AutoModelForCausalLM, BaseStreamer, Tensor, env } from "@huggingface/transformers";
import type { TextStreamer } from "@huggingface/transformers";

interface Options {
  readonly dtype: "q4" | "q8";
  readonly threads: number;
  /** Tokens to generate; the time from the first to the last of them counts. */
  readonly decodeTokens: number;
  readonly promptTokenIds: readonly number[];
}

const [folder, optionsText] = process.argv.slice(2) as [string, string];
const options = JSON.parse(optionsText) as Options;

env.allowRemoteModels = false;
env.localModelPath = dirname(folder);
const model = await AutoModelForCausalLM.from_pretrained(basename(folder), {
  dtype: options.dtype,
  device: "cpu",
  session_options: { intraOpNumThreads: options.threads },
});

/** Receives the prompt first, then one token at a time. */
class TokenTimes extends BaseStreamer {
  readonly tokenIds: number[] = [];
  readonly times: number[] = [];
  #hasPrompt = false;

  override put(value: bigint[][]): void {
    if (this.#hasPrompt) {
      this.tokenIds.push(Number(value[0]![0]));
      this.times.push(performance.now());
    }
    this.#hasPrompt = true;
  }
  override end(): void {}
}

async function generate(numTokens: number): Promise<TokenTimes> {
  const tokenIds = BigInt64Array.from(options.promptTokenIds, BigInt);
  const inputs = new Tensor("int64", tokenIds, [1, tokenIds.length]);
  const times = new TokenTimes();
  const streamer = times as BaseStreamer as TextStreamer; // The declared type is narrower, but any streamer is accepted.
  await model.generate({ inputs, max_new_tokens: numTokens, do_sample: false, streamer });
  return times;
}

await generate(4); // Warms the session up for both lengths of input.
const { tokenIds, times } = await generate(options.decodeTokens);
const decodeMs = times.at(-1)! - times[0]!;
console.log(JSON.stringify({ decodeTokensPerSecond: ((times.length - 1) * 1000) / decodeMs, tokenIds }));
