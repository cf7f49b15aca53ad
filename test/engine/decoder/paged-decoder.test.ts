import { expect, test } from "vitest";

import { loadDecoder } from "../../../engine/core/load-graphs.ts";
import { PagedDecoder } from "../../../engine/decoder/paged-decoder.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "../core/golden-engine.ts";

test("a warm-up of all padded shapes runs on the scratch block alone", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path, "float32", { kind: "paged", blockSize: 16 });
  const { decoder, kvManager } = loadDecoder(createWorkerOptions(model));
  using owned = decoder;
  expect(owned).toBeInstanceOf(PagedDecoder);
  (decoder as PagedDecoder).warmUp();
  expect(kvManager.usage).toBe(0);
});

test.for([true, false])("eager steps (%s) give the reference's tokens, alone and with others", async (enforceEager) => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel("llava-default", cache.path, "float32", {
    kind: "paged",
    blockSize: 16,
  });
  using engine = await SteppedEngine.create(createWorkerOptions(model, { enforceEager, maxNumSequences: 5 }));
  for (let index = 0; index < 7; index++) {
    engine.add(goldenRequest(`${index}`, cases[index % cases.length]!, model));
    engine.step();
  }
  engine.runToEnd();
  for (let index = 0; index < 7; index++) {
    expect(engine.tokensOf(`${index}`)).toEqual(cases[index % cases.length]!.greedyTokenIds);
  }
});
