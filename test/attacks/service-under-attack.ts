/** The service as a separate process, started like by users, with measurements of what attacks leave behind in it. */
import { get } from "node:http";
import type { IncomingMessage } from "node:http";
import { text } from "node:stream/consumers";

import { startReadyCli } from "../support/service/ready-cli.ts";
import { Inspector } from "./inspector.ts";

/** Longer than any machine needs for an answer. Only decides when to stop waiting. */
const SCRAPE_DEADLINE_MS = 30_000;

/** Since the start of the process, from /metrics. */
export interface Figures {
  readonly numSteps: number;
  readonly numGeneratedTokens: number;
  readonly cpuSeconds: number;
  /** Sequences in the engine. */
  readonly numSequences: number;
  readonly numRequests: number;
  readonly residentBytes: number;
}

/** What the main thread holds after a garbage collection. */
export interface Holdings {
  /** JavaScript heap and external memory. */
  readonly numBytes: number;
  /** Open sockets, timers and similar resources, by type. */
  readonly numResources: Readonly<Record<string, number>>;
}

export interface ServiceUnderAttack extends AsyncDisposable {
  readonly baseUrl: string;
  readonly figures: () => Promise<Figures>;
  readonly holdings: () => Promise<Holdings>;
  /** Complaints since the last call: log lines at level error, all of stderr, its own end. */
  readonly takeComplaints: () => readonly string[];
}

export async function startServiceUnderAttack(
  environment: Readonly<Record<string, string>>,
): Promise<ServiceUnderAttack> {
  const { cli, baseUrl } = await startReadyCli({
    // Collects garbage on demand and counts open resources, without test code in the process.
    NODE_OPTIONS: "--inspect=127.0.0.1:0",
    ...environment,
  });
  let ending: string | null = null;
  void cli.exitCode.then((code) => (ending = `The process ended with ${code ?? cli.child.signalCode}.`));
  const inspector = await Inspector.connect(/ws:\/\/\S+/.exec(cli.stderr())![0]);
  let numSeenOut = 0;
  let numSeenErr = 0;
  return {
    baseUrl,
    figures: async () => readFigures(await scrape(`${baseUrl}/metrics`)),
    holdings: () => readHoldings(inspector),
    takeComplaints() {
      const out = wholeLines(cli.stdout().slice(numSeenOut));
      const err = wholeLines(cli.stderr().slice(numSeenErr));
      numSeenOut += out.length;
      numSeenErr += err.length;
      const logged = out.split("\n").filter((line) => line.includes('"level":"error"'));
      const printed = err.split("\n").filter((line) => line !== "" && !isOfInspector(line));
      return [...logged, ...printed, ...(ending === null ? [] : [ending])];
    },
    async [Symbol.asyncDispose]() {
      inspector.close();
      await cli[Symbol.asyncDispose]();
    },
  };
}

/** On a separate connection, which is closed when it resolves. */
async function scrape(url: string): Promise<string> {
  const response = Promise.withResolvers<IncomingMessage>();
  const request = get(url, { agent: false, signal: AbortSignal.timeout(SCRAPE_DEADLINE_MS) }, response.resolve);
  request.once("error", response.reject);
  return text(await response.promise);
}

function wholeLines(text: string): string {
  return text.slice(0, text.lastIndexOf("\n") + 1);
}

function isOfInspector(line: string): boolean {
  return /^(Debugger (listening|attached|ending)|For help, see: https:\/\/nodejs\.org|Waiting for the debugger)/.test(
    line,
  );
}

function readFigures(metrics: string): Figures {
  const valueOf = (name: string): number => {
    const value = new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)$`, "m").exec(metrics)?.[1];
    if (value === undefined) throw new Error(`/metrics has no ${name}:\n${metrics.slice(0, 500)}`);
    return Number(value);
  };
  return {
    numSteps: valueOf("fovea_engine_steps_total"),
    numGeneratedTokens: valueOf("vllm:generation_tokens_total"),
    cpuSeconds: valueOf("process_cpu_seconds_total"),
    numSequences: valueOf("vllm:num_requests_running") + valueOf("vllm:num_requests_waiting"),
    numRequests: valueOf("fovea_http_requests_in_flight"),
    residentBytes: valueOf("process_resident_memory_bytes"),
  };
}

async function readHoldings(inspector: Inspector): Promise<Holdings> {
  // Twice: finalizers of the first collection release what the second frees.
  await inspector.call("HeapProfiler.collectGarbage");
  await inspector.call("HeapProfiler.collectGarbage");
  const { result } = await inspector.call("Runtime.evaluate", {
    expression: "JSON.stringify({ memory: process.memoryUsage(), resources: process.getActiveResourcesInfo() })",
    returnByValue: true,
  });
  const { memory, resources } = JSON.parse((result as { value: string }).value) as {
    memory: NodeJS.MemoryUsage;
    resources: string[];
  };
  const numResources: Record<string, number> = {};
  for (const type of resources) numResources[type] = (numResources[type] ?? 0) + 1;
  return { numBytes: memory.heapUsed + memory.external, numResources };
}
