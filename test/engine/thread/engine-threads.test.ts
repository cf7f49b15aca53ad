import { once } from "node:events";
import { copyFile, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { afterAll, beforeAll, expect, test } from "vitest";

import { numUsableCores } from "../../../engine/runtime/usable-cores.ts";
import type { EngineThread } from "../../../engine/thread/engine-thread.ts";
import { EngineThreads } from "../../../engine/thread/engine-threads.ts";
import type { EngineCoreOutput, WorkerOptions } from "../../../engine/thread/messages.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest } from "../core/golden-engine.ts";
import type { GoldenModel } from "../core/golden-engine.ts";

let folder: TemporaryFolder;
let golden: GoldenModel;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  golden = await buildGoldenModel("llama", folder.path);
});

afterAll(() => folder[Symbol.asyncDispose]());

/** Two copies with one thread each, or two while the other rests. */
class Copies implements AsyncDisposable {
  readonly threads: EngineThreads;
  readonly ready: Promise<void>;
  readonly failures: Error[] = [];
  readonly #outputs: EngineCoreOutput[] = [];
  #wake: () => void = () => undefined;

  constructor(options: WorkerOptions) {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.ready = promise;
    this.threads = new EngineThreads(
      {
        onPhase: () => undefined,
        onDevice: () => undefined,
        onReady: resolve,
        onOutputs: ({ outputs }) => {
          this.#outputs.push(...outputs);
          this.#wake();
        },
        onEncoded: () => undefined,
        onStall: () => undefined,
        onFailed: (error) => this.failures.push(error),
      },
      { stepTimeoutMs: 60_000, cudaDeviceId: null, reusesPrefixes: true },
    );
    this.threads.load(options);
  }

  /** Sends a request of the golden case; the engine would count its sequences, too. */
  send(requestId: string): EngineThread {
    const request = goldenRequest(requestId, golden.cases[0]!, golden.model);
    const thread = this.threads.choose(request);
    thread.numSequences += 1;
    thread.post({ kind: "add", request });
    return thread;
  }

  async tokensOf(requestId: string): Promise<number[]> {
    for (;;) {
      const outputs = this.#outputs.filter((output) => output.requestId === requestId);
      if (outputs.at(-1)?.finishReason != null) return outputs.flatMap(({ tokenIds }) => tokenIds);
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.threads.close();
  }
}

// With one core, copies cannot take each other's threads, and all are loaded at once.
const hasTwoCores = numUsableCores() >= 2;

test.runIf(hasTwoCores)(
  "the second copy is loaded when there is enough work, and answers as the first one does",
  async () => {
    await using copies = new Copies(createWorkerOptions(golden.model, { dataParallelSize: 2 }));
    await copies.ready;
    const { kvCapacity } = copies.threads.stats;
    // Those of both copies, of which one is loaded.
    expect(kvCapacity.numTokens).toBe(2 * 8 * 512);
    const early = Array.from({ length: 9 }, (_, index) => copies.send(`early-${index}`));
    expect(new Set(early).size).toBe(1);
    const [first] = early;
    await expect
      .poll(() => copies.threads.choose(goldenRequest("other", golden.cases[0]!, golden.model)) !== first, {
        timeout: 30_000,
      })
      .toBe(true);
    expect(copies.send("late")).not.toBe(first);
    const answer = await copies.tokensOf("late");
    expect(answer.length).toBeGreaterThan(0);
    for (let index = 0; index < early.length; index++) expect(await copies.tokensOf(`early-${index}`)).toEqual(answer);
    expect(copies.threads.stats.kvCapacity).toEqual(kvCapacity);
    expect(copies.failures).toEqual([]);
  },
);

test.runIf(hasTwoCores)("a copy that does not load leaves the work to the first one", async () => {
  const { decoder } = golden.model;
  const path = join(folder.path, "decoder.onnx");
  await copyFile(decoder.path, path);
  const model = { ...golden.model, decoder: { ...decoder, path } };
  await using copies = new Copies(createWorkerOptions(model, { dataParallelSize: 2 }));
  await copies.ready;
  await rm(path);
  const warned = once(process, "warning");
  const threads = Array.from({ length: 10 }, (_, index) => copies.send(`request-${index}`));
  expect(new Set(threads).size).toBe(1);
  const [warning] = (await warned) as [Error];
  expect(warning.message).toMatch(/further copy of the model could not be loaded: .*decoder\.onnx cannot be read/);
  expect(copies.send("after")).toBe(threads[0]);
  expect((await copies.tokensOf("after")).length).toBeGreaterThan(0);
  expect(copies.failures).toEqual([]);
});

test("copies of few sequences are loaded before the first request", async () => {
  await using copies = new Copies(createWorkerOptions(golden.model, { dataParallelSize: 2, maxNumSequences: 1 }));
  await copies.ready;
  expect(copies.send("one")).not.toBe(copies.send("other"));
  expect(await copies.tokensOf("one")).toEqual(await copies.tokensOf("other"));
});
