/** Requests that are sent to a side while others are under way, and what their senders see of it. */
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";

import { median } from "../measure.ts";

export interface LoadShape {
  readonly name: string;
  readonly promptTokens: number;
  readonly outputTokens: number;
}

/** When requests are sent. `requests` are counted; half as many as clients, or a tenth of an open loop's, go before them. */
export type Arrivals =
  /** Each client sends its next request as soon as the last one is answered. */
  | { readonly clients: number; readonly requests: number }
  /** Requests arrive at random, independently of each other. */
  | { readonly requestsPerSecond: number; readonly requests: number };

export type Load = LoadShape & Arrivals;

/** Milliseconds. */
export interface Percentiles {
  readonly median: number;
  readonly p95: number;
  readonly p99: number;
  /** The largest; left out by the other side. */
  readonly max?: number;
}

export interface LoadFigures {
  readonly outputTokensPerSecond: number;
  /** From a request to its first token. In a closed loop, without the burst of the clients' first requests. */
  readonly firstTokenMs: Percentiles;
  /** Between two tokens of a request. */
  readonly betweenTokensMs: Percentiles;
}

/** Sends the request of this number, and calls `onTokens` with the number of tokens of each piece of its output. */
export type Send = (request: number, onTokens: (count: number) => void) => Promise<void>;

/** The load, after a shorter one that is not counted. */
export async function runLoad(load: Arrivals, send: Send): Promise<LoadFigures> {
  const shorter = "clients" in load ? Math.max(2, Math.ceil(load.clients / 2)) : Math.max(2, load.requests / 10);
  let numSent = 0;
  const sendNext: Send = (_, onTokens) => send(numSent++, onTokens);
  await runOnce({ ...load, requests: Math.round(shorter) }, sendNext);
  return runOnce(load, sendNext);
}

async function runOnce(load: Arrivals, send: Send): Promise<LoadFigures> {
  const firstTokenMs: number[] = [];
  const betweenTokensMs: number[] = [];
  let numTokens = 0;
  const sendOne = async (request: number): Promise<void> => {
    let lastMs = performance.now();
    let isFirst = true;
    await send(request, (received) => {
      if (received === 0) return;
      const now = performance.now();
      const gaps = isFirst ? firstTokenMs : betweenTokensMs;
      if (!isFirst || "requestsPerSecond" in load || request >= load.clients) gaps.push((now - lastMs) / received);
      lastMs = now;
      isFirst = false;
      numTokens += received;
    });
  };
  const startMs = performance.now();
  await ("clients" in load ? closedLoop(load, sendOne) : openLoop(load, sendOne));
  return {
    outputTokensPerSecond: (numTokens / (performance.now() - startMs)) * 1000,
    firstTokenMs: percentiles(firstTokenMs),
    betweenTokensMs: percentiles(betweenTokensMs),
  };
}

async function closedLoop(
  { clients, requests }: { readonly clients: number; readonly requests: number },
  sendOne: (request: number) => Promise<void>,
): Promise<void> {
  let next = 0;
  const client = async (): Promise<void> => {
    while (next < requests) await sendOne(next++);
  };
  await Promise.all(Array.from({ length: clients }, client));
}

async function openLoop(
  { requestsPerSecond, requests }: { readonly requestsPerSecond: number; readonly requests: number },
  sendOne: (request: number) => Promise<void>,
): Promise<void> {
  const startMs = performance.now();
  const underWay: Promise<void>[] = [];
  for (const [request, due] of arrivalSeconds(requestsPerSecond, requests).entries()) {
    await delay(Math.max(0, startMs + due * 1000 - performance.now()));
    underWay.push(sendOne(request));
  }
  await Promise.all(underWay);
}

/** When the requests of an open loop are sent, in seconds after its start: the same for all sides and runs. */
export function arrivalSeconds(requestsPerSecond: number, requests: number): number[] {
  const random = pseudoRandom();
  let due = 0;
  return Array.from({ length: requests }, () => (due += -Math.log(1 - random()) / requestsPerSecond));
}

/** Zeros without values: a short load may have none. */
function percentiles(values: readonly number[]): Percentiles {
  if (values.length === 0) return { median: 0, p95: 0, p99: 0, max: 0 };
  const sorted = values.toSorted((left, right) => left - right);
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]!;
  return { median: median(sorted), p95: at(0.95), p99: at(0.99), max: at(1) };
}

/** Numbers from 0 to below 1, the same in each run. */
function pseudoRandom(): () => number {
  let state = 1;
  return () => (state = (state * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31;
}

/** Pseudo-random ids of ordinary tokens, so that no two prompts share a prefix. The Python side draws its own. */
export function createPrompts(length: number, vocabSize: number): () => number[] {
  const FIRST_ORDINARY_ID = 300;
  const random = pseudoRandom();
  const range = vocabSize - FIRST_ORDINARY_ID;
  return () => Array.from({ length }, () => FIRST_ORDINARY_ID + Math.floor(random() * range));
}
