/** An Engine with scripted outputs, for tests of HTTP behaviour that need exact control over them. */
import { once } from "node:events";

import { EngineError } from "../../../engine/index.ts";
import type {
  Engine,
  EngineStall,
  EngineState,
  GenerationRequest,
  RequestOutput,
  SamplingParams,
} from "../../../engine/index.ts";

export interface ScriptedEngine extends Engine {
  state: EngineState;
  stall: EngineStall | null;
  failure: EngineError | null;
  /** In the order of their arrival. */
  readonly requests: GenerationRequest[];
  readonly numAborted: number;
  readonly numRunning: number;
  /** Settles `ready` of an engine that was created as loading. */
  endLoading(error?: EngineError): void;
}

/** Waits until the request is aborted. */
export const hang = Symbol("hang");

/** The events of one generation, in order: texts and outputs are yielded, errors thrown, promises awaited. */
export type Script = readonly (string | Partial<RequestOutput> | Error | typeof hang | Promise<unknown>)[];

/** The last output of a script without an error gets `finishReason` "stop" unless it has one. */
export function createScriptedEngine(
  scriptOf: (request: GenerationRequest) => Script,
  isLoading = false,
  defaultSamplingParams: Partial<SamplingParams> = { topK: 50, maxTokens: 256 },
): ScriptedEngine {
  const loading = Promise.withResolvers<void>();
  if (!isLoading) loading.resolve();
  const requests: GenerationRequest[] = [];
  let numAborted = 0;
  let numRunning = 0;
  return {
    state: isLoading ? "loading" : "ready",
    stall: null,
    failure: null,
    ready: loading.promise,
    async disconnect() {},
    async reconnect() {},
    endLoading(error) {
      if (error === undefined) loading.resolve();
      else loading.reject(error);
    },
    modelInfo: {
      architecture: "Scripted",
      maxModelLen: 512,
      maxNumSequences: 8,
      task: "generate",
      embeddingSize: null,
      vocabSize: 1000,
      acceptsImages: true,
      acceptsVideos: true,
      hasChatTemplate: true,
      chatTemplate: "{{ messages }}",
      eosTokenIds: [2],
      specialTokens: {},
      defaultSamplingParams,
      logitsProcessors: ["steering.target_token:TargetToken"],
    },
    stats: {
      numRequestsRunning: 3,
      numRequestsWaiting: 2,
      kvCacheUsage: 0.25,
      kvCapacity: { blockSize: 0, numBlocks: 0, numTokens: 0 },
      numPromptTokens: 100,
      numGenerationTokens: 50,
      numPrefixCacheQueries: 90,
      numPrefixCacheHits: 40,
      numPreemptions: 0,
      numSteps: 50,
      drafts: { numDrafts: 6, numDraftTokens: 20, numAcceptedTokens: 9, numAcceptedPerPosition: [5, 3, 1] },
      adapters: { running: [], waiting: [] },
    },
    caches: null,
    refusalOf: () => null,
    requests,
    get numAborted() {
      return numAborted;
    },
    get numRunning() {
      return numRunning;
    },
    async *generate(request, { signal, onQueued } = {}) {
      requests.push(request);
      numRunning++;
      let isFinished = false;
      onQueued?.({ numPromptTokens: 5, numImageTokens: 0, numVideoTokens: 0 }, 1);
      try {
        let numOutputTokens = 0;
        const script = scriptOf(request);
        for (const [step, entry] of script.entries()) {
          if (entry === hang) {
            if (signal !== undefined && !signal.aborted) await once(signal, "abort");
          } else if (entry instanceof Promise) await entry;
          else if (entry instanceof Error) throw entry;
          if (signal?.aborted) throw new EngineError("aborted", "The request was aborted.");
          if (typeof entry !== "string" && (entry === hang || entry instanceof Promise || entry instanceof Error))
            continue;
          const told = typeof entry === "string" ? { text: entry } : entry;
          const tokenIds = told.tokenIds ?? [7];
          numOutputTokens += tokenIds.length;
          const finishReason = step === script.length - 1 ? "stop" : null;
          const output = {
            requestId: request.requestId,
            index: 0,
            prompt: null,
            text: "",
            tokenIds,
            logprobs: null,
            finishReason,
            stopReason: null,
            numPromptTokens: 5,
            numImageTokens: 0,
            numCachedTokens: 0,
            numOutputTokens,
            ...told,
          } satisfies RequestOutput;
          isFinished = output.finishReason !== null;
          yield output;
        }
      } finally {
        numRunning--;
        if (!isFinished) numAborted++;
      }
    },
    async render(request) {
      const text = request.prompt.kind === "text" ? request.prompt.text : "chat";
      return { tokenIds: Array.from(text, (character) => character.charCodeAt(0)), images: [] };
    },
    detokenize: async (tokenIds) => String.fromCharCode(...tokenIds.slice(0, 100)),
    tokensOf: (tokenIds) => tokenIds.map((tokenId) => String.fromCharCode(tokenId)),
    async close() {
      this.state = "closed";
    },
  };
}
