/** Compiles structured outputs: each once, in slices between turns of the event loop, the smallest first. */
import { createHash } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";

import { EngineError } from "../contract/errors.ts";
import { compileInSlices } from "./compiled-grammar.ts";
import type { CompiledGrammar } from "./compiled-grammar.ts";
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import { sizeOfProgram } from "./program.ts";
import { checkStructuredOutput, describeStructuredOutput } from "./structured-output.ts";
import type { StructuredOutput } from "./structured-output.ts";

export interface GrammarCompilerOptions {
  /** Called for the first grammar, and again after a failure. */
  readonly loadVocabulary: () => Promise<GrammarVocabulary>;
}

export interface CompileOptions {
  readonly signal?: AbortSignal;
}

interface Job {
  readonly structuredOutput: StructuredOutput;
  readonly id: string;
  /** Characters of the source, which determine the compile time. */
  readonly size: number;
  readonly result: PromiseWithResolvers<CompiledGrammar>;
  /** Callers that have not given up. */
  numWaiting: number;
}

/** Maximum number of waiting structured outputs. */
const maxNumJobs = 64;
/** Limit for all compiled grammars kept. A typical one takes a few KB, the largest 16 MB. */
const maxKeptBytes = 64 * 2 ** 20;

/**
 * The time to compile is proportional to the source, less than a millisecond for most. Because small sources go first,
 * many large sources of one sender delay others only by the one in progress. Mutable.
 */
export class GrammarCompiler implements AsyncDisposable {
  readonly #loadVocabulary: () => Promise<GrammarVocabulary>;
  /** By id, in the order of last use. */
  readonly #compiled = new Map<string, CompiledGrammar>();
  #keptBytes = 0;
  /** Waiting jobs by id, in the order of arrival. */
  readonly #jobs = new Map<string, Job>();
  #vocabulary: Promise<GrammarVocabulary> | null = null;
  #isWorking = false;
  #isClosed = false;

  constructor({ loadVocabulary }: GrammarCompilerOptions) {
    this.#loadVocabulary = loadVocabulary;
  }

  /**
   * Throws EngineError `invalid_argument` for a malformed or unsupported structured output, `queue_full` or `closed`.
   * Rejects with the signal's reason when aborted.
   */
  async compile(structuredOutput: StructuredOutput, { signal }: CompileOptions = {}): Promise<CompiledGrammar> {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closedError();
    checkStructuredOutput(structuredOutput);
    const source = JSON.stringify(structuredOutput);
    const id = createHash("sha256").update(source).digest("base64url");
    const compiled = this.#compiled.get(id);
    if (compiled === undefined) {
      return waitFor(this.#jobs.get(id) ?? this.#enqueue(structuredOutput, id, source.length), signal);
    }
    this.#compiled.delete(id);
    this.#compiled.set(id, compiled);
    return compiled;
  }

  /** Rejects waiting compilations with `closed`. Idempotent. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    for (const { result } of this.#jobs.values()) result.reject(closedError());
    this.#jobs.clear();
  }

  /** If too many are waiting, the largest is rejected. */
  #enqueue(structuredOutput: StructuredOutput, id: string, size: number): Job {
    const job: Job = { structuredOutput, id, size, result: Promise.withResolvers(), numWaiting: 0 };
    // Waiting callers see the failure. Without waiting callers, it is ignored.
    job.result.promise.catch(() => {});
    this.#jobs.set(id, job);
    if (this.#jobs.size > maxNumJobs) {
      const largest = [...this.#jobs.values()].reduce((most, other) => (other.size >= most.size ? other : most));
      this.#jobs.delete(largest.id);
      const problem = `${maxNumJobs} structured outputs are waiting to be compiled, which is the limit, and this is the largest`;
      largest.result.reject(new EngineError("queue_full", `${problem}.`));
    }
    if (!this.#isWorking) void this.#work();
    return job;
  }

  /** Compiles until no job is left, including jobs that arrive meanwhile. Never rejects. */
  async #work(): Promise<void> {
    this.#isWorking = true;
    for (await nextTurn(); this.#jobs.size > 0; await nextTurn()) {
      const job = [...this.#jobs.values()].reduce((least, other) => (other.size < least.size ? other : least));
      try {
        if (job.numWaiting === 0)
          throw new EngineError("aborted", "The request for the structured output was aborted.");
        const vocabulary = await this.#loadVocabularyOnce();
        job.result.resolve(this.#keep(await compile(job, vocabulary)));
      } catch (error) {
        job.result.reject(error);
      }
      this.#jobs.delete(job.id);
    }
    this.#isWorking = false;
  }

  #loadVocabularyOnce(): Promise<GrammarVocabulary> {
    this.#vocabulary ??= this.#loadVocabulary();
    this.#vocabulary.catch(() => void (this.#vocabulary = null));
    return this.#vocabulary;
  }

  #keep(grammar: CompiledGrammar): CompiledGrammar {
    this.#compiled.set(grammar.id, grammar);
    this.#keptBytes += sizeOfProgram(grammar.program);
    for (const [oldId, old] of this.#compiled) {
      if (this.#keptBytes <= maxKeptBytes) break;
      this.#compiled.delete(oldId);
      this.#keptBytes -= sizeOfProgram(old.program);
    }
    return grammar;
  }
}

async function compile({ id, structuredOutput }: Job, vocabulary: GrammarVocabulary): Promise<CompiledGrammar> {
  const slices = compileInSlices(structuredOutput);
  let slice = slices.next();
  for (; slice.done !== true; slice = slices.next()) await nextTurn();
  return { id, description: describeStructuredOutput(structuredOutput), program: slice.value, vocabulary };
}

/** A caller that gives up leaves the job to the others. */
async function waitFor(job: Job, signal: AbortSignal | undefined): Promise<CompiledGrammar> {
  const aborted = Promise.withResolvers<never>();
  const onAbort = (): void => aborted.reject(signal?.reason);
  signal?.addEventListener("abort", onAbort, { once: true });
  job.numWaiting++;
  try {
    return await Promise.race([job.result.promise, aborted.promise]);
  } finally {
    job.numWaiting--;
    signal?.removeEventListener("abort", onAbort);
  }
}

function closedError(): EngineError {
  return new EngineError("closed", "The engine is closed.");
}
