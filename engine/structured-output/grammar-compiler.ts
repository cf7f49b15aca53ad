/** Compiles structured outputs: each once, in slices between turns of the event loop, by fair queueing. */
import { createHash } from "node:crypto";
import { setImmediate as nextTurn } from "node:timers/promises";

import { EngineError } from "../contract/errors.ts";
import { FairQueue } from "../fair-queue.ts";
import type { QueuedWork } from "../fair-queue.ts";
import { checkStructuredOutput } from "./check-structured-output.ts";
import { compileInSlices } from "./compiled-grammar.ts";
import type { CompiledGrammar } from "./compiled-grammar.ts";
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import { sizeOfProgram } from "./program.ts";
import { describeStructuredOutput } from "./structured-output.ts";
import type { StructuredOutput } from "./structured-output.ts";

export interface GrammarCompilerOptions {
  /** Called for the first grammar with these special tokens as text, and again after a failure. */
  readonly loadVocabulary: (textTokenIds: readonly number[]) => Promise<GrammarVocabulary>;
}

export interface CompileOptions {
  readonly signal?: AbortSignal;
  /** The tenant, which shares the compiler with others. Default "". */
  readonly tenant?: string;
  /** Special tokens that are text, in ascending order. Default none. */
  readonly textTokenIds?: readonly number[];
}

/** One source, for all callers that wait for it. */
interface Compilation {
  readonly structuredOutput: StructuredOutput;
  readonly textTokenIds: readonly number[];
  readonly id: string;
  /** Callers that have not given up. */
  readonly waits: Set<Wait>;
}

/** Its cost is the length of the source, on which the time depends. */
interface Wait extends QueuedWork {
  readonly compilation: Compilation;
  readonly result: PromiseWithResolvers<CompiledGrammar>;
}

/** Maximum number of waiting structured outputs. It bounds their sources in total, because each source is bounded. */
const MAX_NUM_WAITING = 64;
const MAX_WAITING_BYTES = 16 * 2 ** 20;
/**
 * Vocabularies kept, which differ in the special tokens that are text: usually one, and one for tools. Each takes a few
 * megabytes.
 */
const MAX_NUM_VOCABULARIES = 4;
/** Limit for all compiled grammars kept. A typical one takes a few KB, the largest 16 MB. */
const MAX_KEPT_BYTES = 64 * 2 ** 20;

/**
 * The time to compile is proportional to the source, less than a millisecond for most. Tenants share the compiler, so one
 * that sends many sources does not delay the others. Small sources go before large ones of the same tenant. Mutable.
 */
export class GrammarCompiler implements AsyncDisposable {
  readonly #loadVocabulary: GrammarCompilerOptions["loadVocabulary"];
  /** By id, in the order of last use. */
  readonly #compiled = new Map<string, CompiledGrammar>();
  #keptBytes = 0;
  /** Waiting and running compilations by id. */
  readonly #compilations = new Map<string, Compilation>();
  readonly #queue = new FairQueue<Wait>({ maxNumWaiting: MAX_NUM_WAITING, maxWaitingBytes: MAX_WAITING_BYTES });
  /** By their text tokens, in the order of last use. */
  readonly #vocabularies = new Map<string, Promise<GrammarVocabulary>>();
  #isWorking = false;
  #isClosed = false;

  constructor({ loadVocabulary }: GrammarCompilerOptions) {
    this.#loadVocabulary = loadVocabulary;
  }

  /**
   * Throws EngineError `invalid_argument` for a malformed or unsupported structured output, `queue_full` or `closed`.
   * Rejects with the signal's reason when aborted.
   */
  async compile(
    structuredOutput: StructuredOutput,
    { signal, tenant = "", textTokenIds = [] }: CompileOptions = {},
  ): Promise<CompiledGrammar> {
    signal?.throwIfAborted();
    if (this.#isClosed) throw closedError();
    checkStructuredOutput(structuredOutput);
    const source = JSON.stringify(textTokenIds.length === 0 ? structuredOutput : [structuredOutput, textTokenIds]);
    const id = createHash("sha256").update(source).digest("base64url");
    const compiled = this.#compiled.get(id);
    if (compiled === undefined) {
      const compilation = this.#compilations.get(id) ?? { structuredOutput, textTokenIds, id, waits: new Set() };
      return this.#waitFor(compilation, { tenant, size: source.length, signal });
    }
    this.#compiled.delete(id);
    this.#compiled.set(id, compiled);
    return compiled;
  }

  /** Rejects waiting compilations with `closed`. Idempotent. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#isClosed = true;
    for (const { waits } of this.#compilations.values()) {
      for (const wait of waits) this.#giveUp(wait, closedError());
    }
  }

  async #waitFor(
    compilation: Compilation,
    options: { readonly tenant: string; readonly size: number; readonly signal: AbortSignal | undefined },
  ): Promise<CompiledGrammar> {
    const { tenant, size, signal } = options;
    const result = Promise.withResolvers<CompiledGrammar>();
    const wait: Wait = { tenant, request: {}, cost: size, numBytes: size, compilation, result };
    this.#compilations.set(compilation.id, compilation);
    compilation.waits.add(wait);
    for (const refused of this.#queue.add(wait)) this.#giveUp(refused, queueFullError());
    const onAbort = (): void => this.#giveUp(wait, signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    if (!this.#isWorking) void this.#work();
    try {
      return await result.promise;
    } finally {
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Leaves the compilation to the callers that still wait for it. */
  #giveUp(wait: Wait, reason: unknown): void {
    const { id, waits } = wait.compilation;
    this.#queue.remove(wait);
    waits.delete(wait);
    if (waits.size === 0) this.#compilations.delete(id);
    wait.result.reject(reason);
  }

  /** Compiles until no job is left, including jobs that arrive meanwhile. Never rejects. */
  async #work(): Promise<void> {
    this.#isWorking = true;
    await nextTurn();
    for (let next = this.#queue.take(); next !== null; next = this.#queue.take()) {
      const { compilation } = next;
      try {
        const grammar = await compile(compilation, await this.#loadVocabularyOnce(compilation.textTokenIds));
        if (grammar !== null) this.#keep(grammar);
        for (const { result } of compilation.waits) result.resolve(grammar!);
      } catch (error) {
        for (const { result } of compilation.waits) result.reject(error);
      }
      for (const wait of compilation.waits) this.#queue.remove(wait);
      if (this.#compilations.get(compilation.id) === compilation) this.#compilations.delete(compilation.id);
      await nextTurn();
    }
    this.#isWorking = false;
  }

  #loadVocabularyOnce(textTokenIds: readonly number[]): Promise<GrammarVocabulary> {
    const key = textTokenIds.join();
    const vocabulary = this.#vocabularies.get(key) ?? this.#loadVocabulary(textTokenIds);
    this.#vocabularies.delete(key);
    this.#vocabularies.set(key, vocabulary);
    vocabulary.catch(() => void this.#vocabularies.delete(key));
    const [oldest] = this.#vocabularies.keys();
    if (this.#vocabularies.size > MAX_NUM_VOCABULARIES) this.#vocabularies.delete(oldest!);
    return vocabulary;
  }

  #keep(grammar: CompiledGrammar): void {
    this.#compiled.set(grammar.id, grammar);
    this.#keptBytes += sizeOfProgram(grammar.program);
    for (const [oldId, old] of this.#compiled) {
      if (this.#keptBytes <= MAX_KEPT_BYTES) break;
      this.#compiled.delete(oldId);
      this.#keptBytes -= sizeOfProgram(old.program);
    }
  }
}

/** Null if all callers gave up before the end. */
async function compile(
  { id, structuredOutput, waits }: Compilation,
  vocabulary: GrammarVocabulary,
): Promise<CompiledGrammar | null> {
  const slices = compileInSlices(structuredOutput);
  let slice = slices.next();
  for (; slice.done !== true; slice = slices.next()) {
    await nextTurn();
    if (waits.size === 0) return null;
  }
  return { id, description: describeStructuredOutput(structuredOutput), program: slice.value, vocabulary };
}

function queueFullError(): EngineError {
  const problem = `${MAX_NUM_WAITING} structured outputs are waiting to be compiled, which is the limit`;
  return new EngineError("queue_full", `${problem}, and those of this sender are the most or the largest.`);
}

function closedError(): EngineError {
  return new EngineError("closed", "The engine is closed.");
}
