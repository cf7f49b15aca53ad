import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { MessageChannel, Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../engine/contract/config.ts";
import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { decodeModel, encodeModel } from "../../../engine/graph/onnx-schema.ts";
import type {
  EncoderOutput,
  EngineCoreOutput,
  FromEngineThread,
  ToEngineThread,
  WorkerOptions,
} from "../../../engine/thread/messages.ts";
import { StepProgress } from "../../../engine/thread/step-progress.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { endless, withEndlessEncoder } from "../core/endless-encoder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest } from "../core/golden-engine.ts";
import type { GoldenModel } from "../core/golden-engine.ts";

/** A thread, started like by the facade. */
class EngineThread implements AsyncDisposable {
  readonly #worker: Worker;
  readonly #outputs: EngineCoreOutput[] = [];
  readonly #exited: Promise<unknown>;
  #waiting: (() => boolean)[] = [];
  /** The first message but those about phases of the start. */
  first: Promise<FromEngineThread>;
  failure: FromEngineThread | null = null;
  /** Of all images so far. */
  readonly encoded: EncoderOutput[] = [];
  readonly warnings: string[] = [];

  constructor(golden: GoldenModel, overrides: Partial<EngineConfig> = {}, options: Partial<WorkerOptions> = {}) {
    const { port1, port2 } = new MessageChannel();
    this.#worker = new Worker(new URL("../../../engine/thread/worker.ts", import.meta.url), {
      workerData: { optionsPort: port2, progress: new StepProgress().buffer, cudaDeviceId: null },
      transferList: [port2],
    });
    port1.postMessage({ ...createWorkerOptions(golden.model, overrides), ...options });
    port1.close();
    this.#exited = new Promise((resolve) => {
      this.#worker.once("exit", resolve);
    });
    this.first = new Promise((resolve, reject) => {
      this.#worker.on("message", (message: FromEngineThread) => {
        if (message.kind !== "phase" && message.kind !== "warning") resolve(message);
      });
      this.#worker.once("error", reject);
    });
    this.#worker.on("message", (message: FromEngineThread) => {
      if (message.kind === "failed") this.failure = message;
      if (message.kind === "warning") this.warnings.push(message.warning.message);
      if (message.kind === "encoded") this.encoded.push(...message.images);
      if (message.kind !== "outputs") return;
      this.#outputs.push(...message.outputs);
      this.#waiting = this.#waiting.filter((isDone) => !isDone());
    });
  }

  post(message: ToEngineThread): void {
    this.#worker.postMessage(message);
  }

  /** The request's outputs up to its last. */
  async generate(request: EngineRequest): Promise<EngineCoreOutput[]> {
    this.post({ kind: "add", request });
    return this.lastOutputOf(request.requestId);
  }

  async lastOutputOf(requestId: string): Promise<EngineCoreOutput[]> {
    const outputsOf = (): EngineCoreOutput[] => this.#outputs.filter((output) => output.requestId === requestId);
    const isDone = (): boolean =>
      outputsOf().at(-1)?.finishReason !== undefined && outputsOf().at(-1)?.finishReason !== null;
    if (!isDone()) {
      await new Promise<void>((resolve) => {
        this.#waiting.push(() => {
          if (isDone()) resolve();
          return isDone();
        });
      });
    }
    return outputsOf();
  }

  /** Returns the exit code of the thread. */
  async close(): Promise<unknown> {
    this.post({ kind: "close" });
    return this.#exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#worker.terminate();
  }
}

function tokensOf(outputs: readonly EngineCoreOutput[]): number[] {
  return outputs.flatMap(({ tokenIds }) => tokenIds);
}

const targetToken = `
import { LogitsProcessor } from "fovea";
import type { BatchUpdate, Logits } from "fovea";

export class TargetToken extends LogitsProcessor {
  #targets = new Map<number, number>();
  isArgmaxInvariant(): boolean { return false; }
  updateState(batchUpdate: BatchUpdate | null): void {
    for (const index of batchUpdate?.removed ?? []) this.#targets.delete(index);
    for (const { index, params } of batchUpdate?.added ?? []) {
      const target = params.extraArgs["target_token"];
      if (typeof target === "number") this.#targets.set(index, target);
      else this.#targets.delete(index);
    }
    for (const { from, to, directionality } of batchUpdate?.moved ?? []) {
      const moved = this.#targets.get(from);
      const displaced = this.#targets.get(to);
      this.#targets.delete(from);
      this.#targets.delete(to);
      if (moved !== undefined) this.#targets.set(to, moved);
      if (displaced !== undefined && directionality === "swap") this.#targets.set(from, displaced);
    }
  }
  apply(logits: Logits): Logits {
    for (const [index, target] of this.#targets) {
      const row = logits.row(index);
      const kept = row[target];
      row.fill(-Infinity);
      row[target] = kept;
    }
    return logits;
  }
}
`;

const failing = `
import { LogitsProcessor } from "fovea";

export class FailsOnDemand extends LogitsProcessor {
  #isArmed = false;
  isArgmaxInvariant() { return false; }
  updateState(batchUpdate) {
    for (const { params } of batchUpdate?.added ?? []) {
      if (params.extraArgs.fail === "update") throw new Error("cannot take this request");
      this.#isArmed = params.extraArgs.fail === "apply";
    }
  }
  apply(logits) {
    if (!this.#isArmed) return logits;
    this.#isArmed = false;
    throw new Error("cannot apply");
  }
}

export class FailsLater extends LogitsProcessor {
  isArgmaxInvariant() { return false; }
  updateState() {}
  apply(logits) {
    void Promise.reject(new Error("no table"));
    return logits;
  }
}

export class ThrowsLater extends LogitsProcessor {
  isArgmaxInvariant() { return false; }
  updateState() {}
  apply(logits) {
    setTimeout(() => { throw new Error("no answer"); });
    return logits;
  }
}
`;

describe("the engine thread", () => {
  let folder: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    folder = await createTemporaryFolder();
    golden = await buildGoldenModel("llava-default", folder.path);
    await mkdir(join(folder.path, "steering"));
    await writeFile(join(folder.path, "steering", "target_token.ts"), targetToken);
    await writeFile(join(folder.path, "failing.js"), failing);
    await writeFile(join(folder.path, "package.json"), '{ "type": "module" }');
  });

  afterAll(() => folder[Symbol.asyncDispose]());

  test("registers itself, serves requests at any time, and ends on a stop signal", async () => {
    await using thread = new EngineThread(golden);
    const recorded = golden.cases[0]!;
    const early = thread.generate(goldenRequest("early", recorded, golden.model));
    expect(await thread.first).toMatchObject({
      kind: "ready",
      stats: { kvCapacity: { numBlocks: 8, blockSize: 512 } },
    });
    expect(tokensOf(await early)).toEqual(recorded.greedyTokenIds);
    const late = golden.cases.map((one) => thread.generate(goldenRequest(one.name, one, golden.model)));
    expect((await Promise.all(late)).map(tokensOf)).toEqual(golden.cases.map((one) => one.greedyTokenIds));
    expect(await thread.close()).toBe(0);
  });

  test("aborts a running request and continues", async () => {
    await using thread = new EngineThread(golden);
    const recorded = golden.cases[0]!;
    thread.post({ kind: "add", request: goldenRequest("endless", recorded, golden.model, { maxTokens: 400 }) });
    thread.post({ kind: "abort", requestIds: ["endless"] });
    expect((await thread.lastOutputOf("endless")).at(-1)).toMatchObject({ finishReason: "abort", tokenIds: [] });
    const outputs = await thread.generate(goldenRequest("next", recorded, golden.model));
    expect(tokensOf(outputs)).toEqual(recorded.greedyTokenIds);
  });

  test("answers text while an image is being encoded, and ends although the encoding would not", async () => {
    await using thread = new EngineThread(await withEndlessEncoder(golden, folder.path));
    const recorded = golden.cases.find(({ pictures }) => pictures.length > 0)!;
    const request = goldenRequest("image", recorded, golden.model);
    thread.post({ kind: "add", request: endless(request) });
    const text = { ...request, promptTokenIds: [5, 6, 7, 8], images: [] };
    for (const requestId of ["together", "later"]) {
      const outputs = await thread.generate({ ...text, requestId });
      expect(outputs.at(-1)).toMatchObject({ finishReason: "length" });
    }
    thread.post({ kind: "abort", requestIds: ["image"] });
    expect((await thread.lastOutputOf("image")).at(-1)).toMatchObject({ finishReason: "abort", tokenIds: [] });
    // Waits for the end of the aborted encoding.
    expect(tokensOf(await thread.generate({ ...request, requestId: "next" }))).toEqual(recorded.greedyTokenIds);
    thread.post({ kind: "add", request: endless({ ...request, requestId: "last" }) });
    await thread.generate({ ...text, requestId: "beside the last" });
    expect(await thread.close()).toBe(0);
  });

  test("rejects requests beyond the queue, with both numbers", async () => {
    await using thread = new EngineThread(golden, { maxNumSequences: 1, maxNumWaiting: 1 });
    const recorded = golden.cases[0]!;
    const [first, second, third] = ["first", "second", "third"].map((requestId) =>
      thread.generate(goldenRequest(requestId, recorded, golden.model)),
    );
    expect((await third!).at(-1)?.error).toEqual({
      code: "queue_full",
      message: "2 requests are waiting; the limit is 1.",
    });
    expect(tokensOf(await first!)).toEqual(recorded.greedyTokenIds);
    expect(tokensOf(await second!)).toEqual(recorded.greedyTokenIds);
  });

  test("applies a TypeScript processor from the settings to one request, and to no other", async () => {
    await using thread = new EngineThread(golden, {
      logitsProcessors: [{ className: "steering.target_token:TargetToken", options: {} }],
      logitsProcessorPath: [folder.path],
    });
    const recorded = golden.cases[0]!;
    const steered = thread.generate(
      goldenRequest("steered", recorded, golden.model, { maxTokens: 4, extraArgs: { target_token: 0 } }),
    );
    const free = thread.generate(goldenRequest("free", recorded, golden.model));
    expect(tokensOf(await steered)).toEqual([0, 0, 0, 0]);
    expect(tokensOf(await free)).toEqual(recorded.greedyTokenIds);
  });

  test.for(["apply", "update"])("survives a processor that throws in %s", async (fail) => {
    const className = `${join(folder.path, "failing.js")}:FailsOnDemand`;
    await using thread = new EngineThread(golden, { logitsProcessors: [{ className, options: {} }] });
    const recorded = golden.cases[0]!;
    const outputs = await thread.generate(goldenRequest("failing", recorded, golden.model, { extraArgs: { fail } }));
    const message = fail === "apply" ? "cannot apply" : "cannot take this request";
    expect(outputs.at(-1)).toMatchObject({
      finishReason: "error",
      error: { code: "logits_processor_failed", message: `The logits processor ${className} failed: ${message}` },
    });
    expect(tokensOf(await thread.generate(goldenRequest("next", recorded, golden.model)))).toEqual(
      recorded.greedyTokenIds,
    );
  });

  test.for([
    ["an unhandled rejected promise", "FailsLater", "rejected: no table"],
    ["an exception in a timer", "ThrowsLater", "threw: no answer"],
  ] as const)("survives %s of a processor, and logs a warning", async ([, exported, warning]) => {
    const className = `${join(folder.path, "failing.js")}:${exported}`;
    await using thread = new EngineThread(golden, { logitsProcessors: [{ className, options: {} }] });
    const recorded = golden.cases[0]!;
    for (const name of ["first", "second"]) {
      const outputs = await thread.generate(goldenRequest(name, recorded, golden.model));
      expect(tokensOf(outputs)).toEqual(recorded.greedyTokenIds);
    }
    await expect.poll(() => thread.warnings).toContainEqual(expect.stringContaining(warning));
    const outputs = await thread.generate(goldenRequest("after", golden.cases[0]!, golden.model));
    expect(tokensOf(outputs)).toEqual(golden.cases[0]!.greedyTokenIds);
  });

  /** The golden model with another name for the node that fails for a token beyond its table: errors quote the name. */
  async function withEmbeddingNamed(name: string): Promise<GoldenModel> {
    const { decoder } = golden.model;
    const model = decodeModel(await readFile(decoder.path));
    const node = model.graph.node.map((each) => (each.input.includes("input_ids.flat") ? { ...each, name } : each));
    const path = join(folder.path, `renamed-${node.length}-${name.length}.onnx`);
    await writeFile(path, encodeModel({ ...model, graph: { ...model.graph, node } }));
    return { ...golden, model: { ...golden.model, decoder: { ...decoder, path } } };
  }

  /** A token that no table has. */
  const beyond = (requestId: string): EngineRequest => ({
    ...goldenRequest(requestId, golden.cases[0]!, golden.model),
    promptTokenIds: [2 ** 30],
    images: [],
  });

  test("a run without memory ends its sequence, and the others continue", async () => {
    await using thread = new EngineThread(await withEmbeddingNamed("CUDA failure 2: out of memory"));
    const recorded = golden.cases[0]!;
    const other = thread.generate(goldenRequest("other", recorded, golden.model));
    const outputs = await thread.generate(beyond("failing"));
    expect(outputs.at(-1)).toMatchObject({
      finishReason: "error",
      error: { code: "out_of_memory", message: expect.stringContaining("too little memory for this request") },
    });
    const warning = expect.stringContaining("CUDA failure 2: out of memory") as string;
    await expect.poll(() => thread.warnings).toContainEqual(warning);
    expect(tokensOf(await other)).toEqual(recorded.greedyTokenIds);
    expect(tokensOf(await thread.generate(goldenRequest("next", recorded, golden.model)))).toEqual(
      recorded.greedyTokenIds,
    );
  });

  test("a lost device ends the thread, which says so first", async () => {
    await using thread = new EngineThread(await withEmbeddingNamed("CUDA failure 719: unspecified launch failure"));
    expect(await thread.first).toMatchObject({
      kind: "ready",
      stats: { kvCapacity: { numBlocks: 8, blockSize: 512 } },
    });
    thread.post({ kind: "add", request: beyond("failing") });
    await expect.poll(() => thread.failure).toMatchObject({ kind: "failed", code: "device_lost" });
    expect(await thread.close()).toBe(0);
  });

  test("sends embeddings that were copied out of the pool beside later steps, and ends while some are copied", async () => {
    const paged = await buildGoldenModel("llava-default", folder.path, "float32", { kind: "paged", blockSize: 16 });
    const withImages = paged.cases.filter(({ imageFeatures }) => imageFeatures !== null);
    const recorded = withImages[0]!;
    // As on a GPU; images that are encoded beside the steps have their features on the host.
    await using thread = new EngineThread(paged, {}, { encodesInBackground: false });
    const outputs = await thread.generate(goldenRequest("first", recorded, paged.model));
    expect(tokensOf(outputs)).toEqual(recorded.greedyTokenIds);
    await expect.poll(() => thread.encoded.length).toBeGreaterThan(0);
    const { data } = thread.encoded[0]!.embeddings;
    expect(data.every((value, index) => Math.abs(value - recorded.imageFeatures![index]!) < 1e-3)).toBe(true);
    for (const one of withImages) thread.post({ kind: "add", request: goldenRequest(one.name, one, paged.model) });
    expect(await thread.close()).toBe(0);
  });

  test("reports a model that does not load and ends", async () => {
    const model = { ...golden.model, decoder: { ...golden.model.decoder, path: join(folder.path, "missing.onnx") } };
    await using thread = new EngineThread({ ...golden, model });
    expect(await thread.first).toMatchObject({ kind: "failed", code: "runtime_failed" });
    expect(await thread.close()).toBe(0);
  });

  test("reports a processor that does not load", async () => {
    const logitsProcessors = [{ className: "steering.missing:Processor", options: {} }];
    await using thread = new EngineThread(golden, { logitsProcessors, logitsProcessorPath: [folder.path] });
    expect(await thread.first).toMatchObject({
      kind: "failed",
      code: "invalid_logits_processor",
      message: expect.stringContaining(`tried ${join(folder.path, "steering", "missing.ts")}`),
    });
  });
});
