/** The thread that compiles grammars, seen from outside: started, asked, ended. */
import { once } from "node:events";
import { Worker } from "node:worker_threads";

import { EngineError, invariant } from "../contract/errors.ts";
import { moduleUrl } from "../module-url.ts";
import type { CompileReply, CompileTask } from "./compile-worker.ts";
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import type { StructuredOutput } from "./structured-output.ts";
import type { CompilationResult } from "./xgrammar.ts";

/** Sorting a vocabulary of 150,000 tokens takes less than a second. */
const START_TIMEOUT_MS = 60_000;

type CompilerOutput = Extract<CompilationResult, { readonly kind: "compiled" }>;

/** Mutable. Does not keep the process alive except while something is waited for. */
export class GrammarThread {
  readonly #worker: Worker;
  #isOver = false;

  private constructor(vocabulary: GrammarVocabulary) {
    this.#worker = new Worker(moduleUrl("./compile-worker", import.meta.url), {
      name: "grammar-compiler",
      workerData: vocabulary,
    });
    this.#worker.on("exit", () => void (this.#isOver = true));
    // Whoever waits for a reply is told; an error while nobody does ends the thread, which is seen by `isOver`.
    this.#worker.on("error", () => void (this.#isOver = true));
  }

  /** Rejects with EngineError `internal`. */
  static async start(vocabulary: GrammarVocabulary): Promise<GrammarThread> {
    const thread = new GrammarThread(vocabulary);
    await thread.#nextReply(START_TIMEOUT_MS);
    return thread;
  }

  /** Whether the thread has ended, or is about to. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /**
   * One at a time. Throws EngineError `invalid_argument` for a structured output that the grammar engine refuses or that
   * takes longer than `timeoutMs`, which ends the thread; `internal` when the thread ends otherwise.
   */
  async compile(structuredOutput: StructuredOutput, timeoutMs: number): Promise<CompilerOutput> {
    this.#worker.postMessage(structuredOutput satisfies CompileTask);
    const reply = await this.#nextReply(timeoutMs);
    if (reply.kind === "compiled") return reply;
    invariant(reply.kind === "refused", "the grammar thread started twice");
    return refuseStructuredOutput(reply.problem);
  }

  async close(): Promise<void> {
    this.#isOver = true;
    await this.#worker.terminate();
  }

  async #nextReply(timeoutMs: number): Promise<CompileReply> {
    const settled = new AbortController();
    const { signal } = settled;
    const timer = setTimeout(() => settled.abort(), timeoutMs);
    this.#worker.ref();
    try {
      const ended = once(this.#worker, "exit", { signal }).then(([exitCode]) => {
        throw new EngineError("internal", `The grammar thread ended by itself, with exit code ${exitCode}.`);
      });
      const [reply] = (await Promise.race([once(this.#worker, "message", { signal }), ended])) as [CompileReply];
      return reply;
    } catch (cause) {
      void this.close();
      if (signal.aborted) {
        return refuseStructuredOutput(`The structured output takes more than ${timeoutMs / 1000} s to compile`);
      }
      if (cause instanceof EngineError) throw cause;
      throw new EngineError("internal", "The grammar thread failed.", { cause });
    } finally {
      clearTimeout(timer);
      settled.abort();
      this.#worker.unref();
    }
  }
}
