/** Compiles grammars on a thread of its own: each once, one after the other, none for longer than a limit. */
import { createHash } from "node:crypto";

import { EngineError } from "../contract/errors.ts";
import { GrammarThread } from "./grammar-thread.ts";
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import type { LanguageSource } from "./language.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { checkStructuredOutput, describeStructuredOutput } from "./structured-output.ts";
import type { StructuredOutput } from "./structured-output.ts";
import type { MemoryImage } from "./xgrammar.ts";

/** A grammar compiled for one vocabulary. A plain value; posting it to a thread copies none of its bytes. */
export interface CompiledGrammar {
  /** Equal for equal structured outputs. */
  readonly id: string;
  /** The structured output as a message tells it. */
  readonly description: string;
  readonly image: MemoryImage;
  /** Which texts it is for, told independently of the image. */
  readonly source: LanguageSource;
  readonly vocabulary: GrammarVocabulary;
}

export interface GrammarCompilerOptions {
  /** Called when the first grammar comes, and again where it failed. */
  readonly loadVocabulary: () => Promise<GrammarVocabulary>;
  /** Most grammars take milliseconds, bounds on the length of strings seconds, some would take hours. Default 30 s. */
  readonly compileTimeoutMs?: number;
}

export interface CompileOptions {
  readonly signal?: AbortSignal;
}

interface Job {
  readonly structuredOutput: StructuredOutput;
  readonly id: string;
  readonly result: PromiseWithResolvers<CompiledGrammar>;
  /** Callers that have not given up. */
  numWaiting: number;
}

const defaultCompileTimeoutMs = 30_000;
/** Grammars waiting for the thread. */
const maxNumJobs = 64;
/** One grammar's share of memory, here and again on the thread that uses it. */
const maxGrammarBytes = 128 * 2 ** 20;
/** Of all compiled grammars kept. A common one takes 0.3 MB; with a vocabulary of 150,000 tokens, 12 MB. */
const maxKeptBytes = 256 * 2 ** 20;

/** Mutable; owns a thread from the first grammar on. */
export class GrammarCompiler implements AsyncDisposable {
  readonly #loadVocabulary: () => Promise<GrammarVocabulary>;
  readonly #compileTimeoutMs: number;
  /** By id, in the order of last use. */
  readonly #compiled = new Map<string, CompiledGrammar>();
  #keptBytes = 0;
  /** Those not finished, by id, in the order they came. */
  readonly #jobs = new Map<string, Job>();
  #vocabulary: GrammarVocabulary | null = null;
  #thread: GrammarThread | null = null;
  #isWorking = false;
  #isClosed = false;

  constructor({ loadVocabulary, compileTimeoutMs = defaultCompileTimeoutMs }: GrammarCompilerOptions) {
    this.#loadVocabulary = loadVocabulary;
    this.#compileTimeoutMs = compileTimeoutMs;
  }

  /**
   * Does not hold up the calling thread. Throws EngineError `invalid_argument` for a structured output that is
   * malformed, not supported or too expensive, `queue_full` or `closed`; rejects with the signal's reason when aborted.
   */
  async compile(structuredOutput: StructuredOutput, { signal }: CompileOptions = {}): Promise<CompiledGrammar> {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closedError();
    checkStructuredOutput(structuredOutput);
    const id = createHash("sha256").update(JSON.stringify(structuredOutput)).digest("base64url");
    const compiled = this.#compiled.get(id);
    if (compiled === undefined) return waitFor(this.#jobs.get(id) ?? this.#enqueue(structuredOutput, id), signal);
    this.#compiled.delete(id);
    this.#compiled.set(id, compiled);
    return compiled;
  }

  /** What is being compiled is given up with `closed`. Idempotent. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    for (const { result } of this.#jobs.values()) result.reject(closedError());
    this.#jobs.clear();
    await this.#thread?.close();
  }

  #enqueue(structuredOutput: StructuredOutput, id: string): Job {
    if (this.#jobs.size >= maxNumJobs) {
      throw new EngineError(
        "queue_full",
        `${this.#jobs.size} grammars wait to be compiled; the limit is ${maxNumJobs}.`,
      );
    }
    const job: Job = { structuredOutput, id, result: Promise.withResolvers(), numWaiting: 0 };
    // Whoever waits sees the failure; that of a job whose callers have all given up concerns nobody.
    job.result.promise.catch(() => {});
    this.#jobs.set(id, job);
    if (!this.#isWorking) void this.#work();
    return job;
  }

  /** Compiles until no job is left, those that come meanwhile included. Never rejects. */
  async #work(): Promise<void> {
    this.#isWorking = true;
    // Lets the caller that brought the first job begin to wait for it.
    await Promise.resolve();
    for (const job of this.#jobs.values()) {
      try {
        if (job.numWaiting === 0) throw new EngineError("aborted", "Nobody waits for the grammar.");
        job.result.resolve(this.#keep({ id: job.id, ...(await this.#compile(job.structuredOutput)) }));
      } catch (error) {
        job.result.reject(error);
      }
      this.#jobs.delete(job.id);
    }
    this.#isWorking = false;
  }

  async #compile(structuredOutput: StructuredOutput): Promise<Omit<CompiledGrammar, "id">> {
    const vocabulary = (this.#vocabulary ??= await this.#loadVocabulary());
    if (this.#thread === null || this.#thread.isOver) {
      this.#thread = await GrammarThread.start(vocabulary);
      if (this.#isClosed) await this.#thread.close();
    }
    const { image, source } = await this.#thread.compile(structuredOutput, this.#compileTimeoutMs);
    const numBytes = image.bytes.length;
    if (numBytes > maxGrammarBytes) {
      refuseStructuredOutput(`The compiled structured output has ${numBytes} bytes; the limit is ${maxGrammarBytes}`);
    }
    return { description: describeStructuredOutput(structuredOutput), image, source, vocabulary };
  }

  #keep(grammar: CompiledGrammar): CompiledGrammar {
    this.#compiled.set(grammar.id, grammar);
    this.#keptBytes += grammar.image.bytes.length;
    for (const [oldId, old] of this.#compiled) {
      if (this.#keptBytes <= maxKeptBytes) break;
      this.#compiled.delete(oldId);
      this.#keptBytes -= old.image.bytes.length;
    }
    return grammar;
  }
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
