/** Runs the sequences of one HTTP request, merges them into one stream of outputs, and measures them. */
import { EngineError } from "../../engine/index.ts";
import type { Engine, GenerationRequest, PromptFigures, RequestOutput } from "../../engine/index.ts";
import type { Metrics } from "../metrics.ts";
import type { Admission } from "../service.ts";

export interface Generation {
  /** Index of the choice: those of one request follow those of the previous request in the list. */
  readonly index: number;
  readonly output: RequestOutput;
}

/**
 * Yields outputs of all requests as they arrive, each sequence's in order. If one fails, all end. Throws EngineError,
 * or the reason of an aborted admission.
 *
 * @param maxRunning Requests that run at the same time; the next one begins when one of them has ended. Default: all.
 */
export async function* runGenerations(
  admission: Admission,
  requests: readonly GenerationRequest[],
  metrics: Metrics,
  maxRunning = Infinity,
): AsyncGenerator<Generation> {
  const { engine, signal } = admission;
  try {
    const outputs = requests.map((request) => measure(engine, request, signal, metrics));
    const firstChoices = firstChoicesOf(requests);
    for await (const { index, output } of merge(outputs, maxRunning))
      yield { index: firstChoices[index]! + output.index, output };
  } catch (error) {
    throw signal.reason instanceof EngineError ? signal.reason : error;
  } finally {
    // If one of several fails or the reader leaves, the others must end too.
    admission.abort(new EngineError("aborted", "The request is over."));
  }
}

/** For requests that want only their prompt computed: the engine always generates at least one token. */
export async function* withoutTokens(generations: AsyncIterable<Generation>): AsyncGenerator<Generation> {
  for await (const { index, output } of generations) {
    const logprobs = output.logprobs === null ? null : [];
    yield {
      index,
      output: { ...output, text: "", tokenIds: [], logprobs, numOutputTokens: 0, finishReason: "length" },
    };
  }
}

function firstChoicesOf(requests: readonly GenerationRequest[]): number[] {
  let numChoices = 0;
  return requests.map((request) => {
    const first = numChoices;
    numChoices += request.numChoices ?? 1;
    return first;
  });
}

async function* measure(
  engine: Engine,
  request: GenerationRequest,
  signal: AbortSignal,
  metrics: Metrics,
): AsyncGenerator<RequestOutput> {
  const start = performance.now();
  /** Null until the prompt waits for the engine: until then, nothing counts, as in vLLM. */
  let prompt: PromptFigures | null = null;
  /** Not what the client asks for, which the engine has not bounded before. */
  let numQueued = 0;
  const onQueued = (figures: PromptFigures, numChoices: number): void => {
    prompt = figures;
    numQueued = numChoices;
  };
  const outputs = engine.generate(request, { signal, onQueued });
  /** By choice. */
  const lastTokens: number[] = [];
  const lastOutputs: RequestOutput[] = [];
  try {
    for await (const output of outputs) {
      const now = performance.now();
      if (output.tokenIds.length > 0) {
        const lastToken = lastTokens[output.index];
        if (lastTokens.length === 0) metrics.observeTimeToFirstToken((now - start) / 1000);
        if (lastToken !== undefined) metrics.observeTokens((now - lastToken) / 1000, output.tokenIds.length);
        lastTokens[output.index] = now;
      }
      lastOutputs[output.index] = output;
      if (output.finishReason === "error") throw new EngineError("internal", "The sequence ended with an error.");
      yield output;
    }
  } finally {
    const seconds = (performance.now() - start) / 1000;
    for (let index = 0; index < Math.max(numQueued, lastOutputs.length); index++) {
      const figures = lastOutputs[index] ?? withoutOutput(prompt, index);
      if (figures === null) continue;
      metrics.observeSequence({ ...figures, finishReason: figures.finishReason ?? "abort" }, seconds);
    }
  }
}

/** The figures of a sequence that ended before its first output. */
function withoutOutput(prompt: PromptFigures | null, index: number) {
  return prompt && { ...prompt, index, numOutputTokens: 0, finishReason: null };
}

/** `index` is that of the iterable. */
interface MergedOutput {
  readonly index: number;
  readonly output: RequestOutput;
}

interface Arrival {
  readonly index: number;
  readonly result: IteratorResult<RequestOutput>;
}

/** Requests the next item of an iterable only after the previous one was taken, so readers set the pace. */
async function* merge(
  iterables: readonly AsyncGenerator<RequestOutput>[],
  maxRunning: number,
): AsyncGenerator<MergedOutput> {
  const arrivals: Arrival[] = [];
  const failures: unknown[] = [];
  let notify = Promise.withResolvers<void>();
  const askNext = async (index: number): Promise<void> => {
    try {
      arrivals.push({ index, result: await iterables[index]!.next() });
    } catch (error) {
      failures.push(error);
    }
    notify.resolve();
  };

  try {
    let numBegun = Math.min(maxRunning, iterables.length);
    for (let index = 0; index < numBegun; index++) void askNext(index);
    let numOpen = iterables.length;
    while (numOpen > 0) {
      await notify.promise;
      notify = Promise.withResolvers();
      if (failures.length > 0) throw failures[0];
      for (const { index, result } of arrivals.splice(0)) {
        if (result.done) {
          numOpen--;
          if (numBegun < iterables.length) void askNext(numBegun++);
          continue;
        }
        yield { index, output: result.value };
        void askNext(index);
      }
    }
  } finally {
    // Not awaited: iterables in the middle of a step end when the caller aborts them.
    for (const iterable of iterables) void iterable.return(undefined).catch(() => {});
  }
}
