/** Collects the choices of an answer that is sent as a whole. */
import type { DecodedPrompt, DecodedTokenLogprobs, RequestOutput } from "../../engine/index.ts";
import type { Generation } from "./generations.ts";

export interface GatheredChoice {
  readonly text: string;
  /** Null if the request does not ask for logprobs. */
  readonly logprobs: readonly DecodedTokenLogprobs[] | null;
  readonly prompt: DecodedPrompt | null;
  readonly tokenIds: readonly number[];
  readonly last: RequestOutput;
}

/** In the order of their indices. */
export async function gatherChoices(generations: AsyncIterable<Generation>): Promise<GatheredChoice[]> {
  const outputsOf: RequestOutput[][] = [];
  for await (const { index, output } of generations) (outputsOf[index] ??= []).push(output);
  return outputsOf.map((outputs) => {
    const last = outputs[outputs.length - 1]!;
    return {
      text: outputs.map(({ text }) => text).join(""),
      logprobs: last.logprobs === null ? null : outputs.flatMap(({ logprobs }) => logprobs ?? []),
      prompt: outputs[0]!.prompt,
      tokenIds: outputs.flatMap(({ tokenIds }) => tokenIds),
      last,
    };
  });
}
