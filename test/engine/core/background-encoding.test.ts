import { afterAll, beforeAll, describe, expect, test } from "vitest";

import type { EngineRequest, ImageFeature } from "../../../engine/core/engine-request.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { endless, withEndlessEncoder } from "./endless-encoder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";

describe.for([{ kind: "slots" }, { kind: "paged", blockSize: 16 }] as const)("llava-default, $kind", (kvLayout) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await withEndlessEncoder(
      await buildGoldenModel("llava-default", cache.path, "float32", kvLayout),
      cache.path,
    );
  });

  afterAll(() => cache[Symbol.asyncDispose]());

  const createEngine = (): Promise<SteppedEngine> => SteppedEngine.create(createWorkerOptions(golden.model));
  const caseWithImages = () => golden.cases.find(({ pictures }) => pictures.length > 0)!;
  const withImage = (requestId: string): EngineRequest => goldenRequest(requestId, caseWithImages(), golden.model);
  const isEnded = (engine: SteppedEngine, requestId: string): boolean =>
    (engine.generations.get(requestId)!.outputs.at(-1)?.finishReason ?? null) !== null;

  /** Steps with a turn of the event loop after each, as the engine thread does. */
  async function stepUntil(engine: SteppedEngine, isDone: () => boolean): Promise<void> {
    while (!isDone()) {
      engine.step();
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  test("text is answered to its end while an image is being encoded, and an abort ends the encoding", async () => {
    using engine = await createEngine();
    engine.add(endless(withImage("image")));
    const text: EngineRequest = { ...withImage("text"), promptTokenIds: [5, 6, 7, 8, 9], images: [] };
    engine.add(text);
    await stepUntil(engine, () => isEnded(engine, "text"));
    expect(engine.isEncoding).toBe(true);
    expect(engine.tokensOf("text")).toHaveLength(text.samplingParams.maxTokens!);
    expect(engine.tokensOf("image")).toEqual([]);
    engine.abort("image");
    engine.step();
    await engine.untilEncoded();
    expect(engine.isEncoding).toBe(false);
    await engine.runToEnd();
    expect(isEnded(engine, "image")).toBe(true);
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
    expect(engine.encodedImages).toEqual([]);
    // The encoder is free for the next image.
    engine.add(withImage("next"));
    await engine.runToEnd();
    expect(engine.tokensOf("next")).toEqual(caseWithImages().greedyTokenIds);
  });

  test("text that arrives within a step without work is answered before the encoding ends", async () => {
    using engine = await createEngine();
    engine.add(endless(withImage("image")));
    await stepUntil(engine, () => engine.isWaiting);
    engine.add({ ...withImage("text"), promptTokenIds: [5, 6, 7, 8, 9], images: [] });
    engine.step();
    await stepUntil(engine, () => engine.isWaiting);
    expect(isEnded(engine, "text")).toBe(true);
    engine.abort("image");
    await engine.runToEnd();
  });

  test("an image of two requests is encoded once, and both get the reference's tokens", async () => {
    using engine = await createEngine();
    engine.add(withImage("first"));
    engine.add({ ...withImage("second"), cacheSalt: "another" });
    await engine.runToEnd();
    engine.add({ ...withImage("third"), cacheSalt: "a third" });
    await engine.runToEnd();
    for (const requestId of ["first", "second", "third"]) {
      expect(engine.tokensOf(requestId)).toEqual(caseWithImages().greedyTokenIds);
    }
    expect(engine.encodedImages).toEqual([...new Set(caseWithImages().pictures)]);
  });

  test("an image under way stays under way while one of its requests remains", async () => {
    using engine = await createEngine();
    engine.add(withImage("goes"));
    engine.add({ ...withImage("stays"), cacheSalt: "another" });
    engine.step();
    expect(engine.isEncoding).toBe(true);
    engine.abort("goes");
    await engine.runToEnd();
    expect(engine.tokensOf("goes")).toEqual([]);
    expect(engine.tokensOf("stays")).toEqual(caseWithImages().greedyTokenIds);
    expect(engine.encodedImages).toEqual([...new Set(caseWithImages().pictures)]);
  });

  test("an image that cannot be encoded ends the requests that have it, and no others", async () => {
    using engine = await createEngine();
    const tensors: ImageFeature["tensors"] = new Map([
      ["pixel_values", { elementType: "float32", shape: [2, 2], data: new Float32Array(4) }],
    ]);
    const broken = (requestId: string): EngineRequest => {
      const request = withImage(requestId);
      const images = request.images.map(({ placeholder }) => ({ placeholder, mmHash: "broken", tensors }));
      return { ...request, images };
    };
    engine.add(broken("first"));
    engine.add({ ...broken("second"), cacheSalt: "another" });
    engine.add(withImage("other"));
    await engine.runToEnd();
    for (const requestId of ["first", "second"]) {
      expect(engine.errorOf(requestId)).toMatchObject({ code: "runtime_failed" });
    }
    expect(engine.tokensOf("other")).toEqual(caseWithImages().greedyTokenIds);
    expect(engine.stats).toMatchObject({ numRequestsRunning: 0, numRequestsWaiting: 0, kvCacheUsage: 0 });
  });

  test("disposing of the engine ends an encoding that would not end", async () => {
    const engine = await createEngine();
    engine.add(endless(withImage("image")));
    engine.step();
    expect(engine.isEncoding).toBe(true);
    engine[Symbol.dispose]();
    await engine.untilEncoded();
    expect(engine.isEncoding).toBe(false);
  });
});

test("a request that finds room in a step that preempts all others runs before the encoding ends", async () => {
  await using cache = await createTemporaryFolder();
  const golden = await buildGoldenModel("llava-default", cache.path, "float32", { kind: "paged", blockSize: 8 });
  const { model, cases } = await withEndlessEncoder(golden, cache.path);
  // Memory for one sequence of full length.
  const settings = { numBlocks: 65, maxNumBatchedTokens: 16 };
  using engine = await SteppedEngine.create(createWorkerOptions(model, settings));
  const pictured = goldenRequest(
    "",
    cases.find(({ pictures }) => pictures.length === 1)!,
    model,
  );
  const [image] = pictured.images;
  const textOf = (length: number): number[] => Array.from({ length }, (_, index) => 5 + (index % 30));
  const features = textOf(image!.placeholder.length).map(() => model.imageTokenId!);
  engine.add(
    endless({
      ...pictured,
      requestId: "picture",
      promptTokenIds: [...textOf(96), ...features, 7],
      images: [{ ...image!, placeholder: { ...image!.placeholder, offset: 96 } }],
    }),
  );
  const text = { ...pictured, images: [] };
  const params = { ...text.samplingParams, ignoreEos: true };
  const long = { ...text, promptTokenIds: [9, 8, 7], samplingParams: { ...params, maxTokens: 500 }, priority: 1 };
  engine.add({ ...long, requestId: "long" });
  while (engine.tokensOf("long").length < 395) engine.step();
  engine.add({ ...text, requestId: "short", promptTokenIds: textOf(40).toReversed() });
  while (engine.stats.numPreemptions === 0) engine.step();
  expect(engine.tokensOf("short")).toEqual([]);
  expect(engine.isWaiting).toBe(false);
  while (!engine.isWaiting) engine.step();
  expect(engine.generations.get("short")!.outputs.at(-1)!.finishReason).toBe("length");
  engine.abort("picture", "long");
  await engine.runToEnd();
});

test("an export's image of two requests is encoded once, and both get the reference's tokens", async () => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("onnx-exports/llava", cache.path);
  const recorded = cases.find(({ pictures }) => pictures.length > 0)!;
  using engine = await SteppedEngine.create(createWorkerOptions(model));
  engine.add(goldenRequest("first", recorded, model));
  engine.add({ ...goldenRequest("second", recorded, model), cacheSalt: "another" });
  engine.step();
  expect(engine.isEncoding).toBe(true);
  await engine.runToEnd();
  for (const requestId of ["first", "second"]) expect(engine.tokensOf(requestId)).toEqual(recorded.greedyTokenIds);
  expect(engine.encodedImages).toEqual([...new Set(recorded.pictures)]);
});
