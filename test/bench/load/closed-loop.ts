/** A load of clients that each send their next request as soon as the last one is answered, and what they see of it. */
import { performance } from "node:perf_hooks";

import { median } from "../measure.ts";

export interface LoadShape {
  readonly name: string;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

export interface ClosedLoop extends LoadShape {
  readonly clients: number;
  /** Counted requests; as many as half of the clients go before them. */
  readonly requests: number;
}

export interface LoadFigures {
  readonly outputTokensPerSecond: number;
  /** Median milliseconds from a request to its first token. */
  readonly firstTokenMs: number;
}

/** Sends one request, and calls `onTokens` with the number of tokens of each piece of its output. */
export type Send = (promptTokenIds: readonly number[], onTokens: (count: number) => void) => Promise<void>;

/** Pseudo-random ids of ordinary tokens, so that no two prompts share a prefix. The Python side draws its own. */
function* promptsOf(length: number, vocabSize: number): Generator<number[], never, undefined> {
  const FIRST_ORDINARY_ID = 300;
  let state = 1;
  const next = (): number => (state = (state * 1_103_515_245 + 12_345) % 2 ** 31);
  for (;;) yield Array.from({ length }, () => FIRST_ORDINARY_ID + (next() % (vocabSize - FIRST_ORDINARY_ID)));
}

/** The loop, after a shorter one that is not counted. */
export async function measureClosedLoop(
  { promptTokens, clients, requests }: ClosedLoop,
  vocabSize: number,
  send: Send,
): Promise<LoadFigures> {
  const prompts = promptsOf(promptTokens, vocabSize);
  const run = async (count: number): Promise<LoadFigures> => {
    const firstTokenMs: number[] = [];
    let numTokens = 0;
    let numLeft = count;
    const startMs = performance.now();
    const client = async (): Promise<void> => {
      while (numLeft-- > 0) {
        const sentMs = performance.now();
        let isFirst = true;
        await send(prompts.next().value, (received) => {
          if (isFirst && received > 0) {
            firstTokenMs.push(performance.now() - sentMs);
            isFirst = false;
          }
          numTokens += received;
        });
      }
    };
    await Promise.all(Array.from({ length: clients }, client));
    const seconds = (performance.now() - startMs) / 1000;
    return { outputTokensPerSecond: numTokens / seconds, firstTokenMs: median(firstTokenMs) };
  };
  await run(Math.max(2, Math.ceil(clients / 2)));
  return run(requests);
}
