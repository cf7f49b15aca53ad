import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createDataUrlImageSource, createEngine, createSamplingParams } from "../../../engine/index.ts";
import type { Engine, GenerationRequest, RequestOutput } from "../../../engine/index.ts";
import { HeldTensors } from "../../../engine/multimodal/held-tensors.ts";
import type { ProcessedItem } from "../../../engine/multimodal/processed-item.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { computePicture, encodePng } from "../images/computed-picture.ts";
import { Pausing } from "../pausing-processor.ts";

function item(numBytes: number): Pick<ProcessedItem, "tensors"> {
  const data = new Float32Array(new SharedArrayBuffer(numBytes));
  return { tensors: new Map([["pixel_values", { elementType: "float32", shape: [data.length], data }]]) };
}

describe("the tensors that requests hold", () => {
  test("beyond the limit, the request with most of them is refused, and the others keep theirs", () => {
    const held = new HeldTensors(1000);
    using large = held.open("tenant");
    using small = held.open("tenant");
    large.replace([item(400), item(200)]);
    small.replace([item(400)]);
    expect(large.refused.aborted).toBe(false);
    small.add(item(8).tensors);
    expect(large.refused.reason).toMatchObject({ code: "queue_full", message: expect.stringContaining("1000") });
    small.add(item(992).tensors);
    expect(small.refused.aborted).toBe(false);
  });

  test("many requests of one tenant do not refuse those of another", () => {
    const held = new HeldTensors(1000);
    using other = held.open("other");
    other.replace([item(400)]);
    const many = Array.from({ length: 20 }, () => held.open("many"));
    for (const request of many) request.replace([item(100)]);
    expect(other.refused.aborted).toBe(false);
    expect(many.filter(({ refused }) => refused.aborted)).toHaveLength(14);
  });

  test("tensors that a cache gives to several requests count once, as long as one of them holds them", () => {
    const held = new HeldTensors(1000);
    const shared = item(800);
    const first = held.open("");
    using second = held.open("");
    using third = held.open("");
    first.replace([shared]);
    second.replace([shared]);
    third.replace([item(200)]);
    expect([first, second, third].map(({ refused }) => refused.aborted)).toEqual([false, false, false]);
    first[Symbol.dispose]();
    third.add(item(8).tensors);
    expect([second, third].map(({ refused }) => refused.aborted)).toEqual([true, false]);
  });

  test("a request that is alone keeps all, and leaves its room when it ends", () => {
    const held = new HeldTensors(1000);
    const alone = held.open("");
    alone.replace([item(4000)]);
    expect(alone.refused.aborted).toBe(false);
    alone[Symbol.dispose]();
    using next = held.open("");
    using last = held.open("");
    next.replace([item(500)]);
    last.replace([item(500)]);
    expect([next, last].map(({ refused }) => refused.aborted)).toEqual([false, false]);
  });
});

describe("requests that wait for the engine", () => {
  /** Of a picture of the checkpoint: 3 x 32 x 32 numbers. */
  const TENSOR_BYTES = 3 * 32 * 32 * 4;
  let cache: TemporaryFolder;
  let engine: Engine;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    const config = goldenEngineConfig("llava-default", cache.path);
    const className = `${join(import.meta.dirname, "../pausing-processor.ts")}:${Pausing.name}`;
    engine = createEngine(
      {
        ...config,
        maxNumSequences: 1,
        logitsProcessors: [{ className, options: {} }],
        imageLimits: { ...config.imageLimits, maxProcessedBytes: 3.5 * TENSOR_BYTES },
      },
      { imageSources: [createDataUrlImageSource()] },
    );
    await engine.ready;
  });
  afterAll(async () => {
    await engine.close();
    await cache[Symbol.asyncDispose]();
  });

  const pictureOf = (width: number): string =>
    `data:image/png;base64,${encodePng(computePicture("photo", width, 40)).toString("base64")}`;

  function ask(requestId: string, widths: readonly number[], extraArgs = {}): GenerationRequest {
    const images = widths.map((width) => ({ type: "image", reference: pictureOf(width) }) as const);
    const text = `${"<image> ".repeat(widths.length)}a`;
    return {
      requestId,
      prompt: { kind: "text", text, addSpecialTokens: false, images },
      samplingParams: createSamplingParams({ temperature: 0, maxTokens: 3, ignoreEos: true, extraArgs }),
    };
  }

  async function lastOf(outputs: AsyncIterable<RequestOutput>): Promise<RequestOutput | undefined> {
    let last: RequestOutput | undefined;
    for await (const output of outputs) last = output;
    return last;
  }

  test("hold the tensors of their pictures up to a limit, and the largest is rejected", async () => {
    const file = join(cache.path, "go-on");
    const running = engine.generate(ask("running", [], { waits_for: file }))[Symbol.asyncIterator]();
    await running.next();
    const small = [ask("first", [41]), ask("second", [42])].map((request) => lastOf(engine.generate(request)));
    await expect(lastOf(engine.generate(ask("large", [43, 44])))).rejects.toMatchObject({ code: "queue_full" });
    await writeFile(file, "");
    for (const last of await Promise.all(small)) expect(last).toMatchObject({ finishReason: "length" });
    await running.return?.();
    // Nothing is counted any more.
    const later = [ask("third", [45, 46]), ask("fourth", [47])].map((request) => lastOf(engine.generate(request)));
    for (const last of await Promise.all(later)) expect(last).toMatchObject({ finishReason: "length" });
  });
});
