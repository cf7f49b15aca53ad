import { expect, test } from "vitest";

import {
  decoderSessionOptions,
  pagedSessionOptions,
  slotSessionOptions,
} from "../../../engine/core/session-options.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions } from "./golden-engine.ts";

test("a paged decoder on cuda captures graphs unless steps are to be eager, and both layouts fuse quantised products", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path);
  const optionsFor = (device: "cpu" | "cuda", enforceEager?: boolean) => {
    const { config } = createWorkerOptions(model, { device, ...(enforceEager !== undefined && { enforceEager }) });
    return { paged: pagedSessionOptions(config, model), slots: slotSessionOptions(config, model) };
  };
  for (const [enforceEager, captures] of [
    [undefined, "1"],
    [false, "1"],
    [true, "0"],
  ] as const) {
    const { paged, slots } = optionsFor("cuda", enforceEager);
    expect(paged.cudaProviderOptions).toEqual({ enable_cuda_graph: captures });
    expect(paged.configEntries).toMatchObject({ "ep.cuda.fpa_intb_gemm": "1" });
    // Attention over slots reads a length of the host's memory, which a captured graph would keep.
    expect(slots.cudaProviderOptions).toBeUndefined();
    expect(slots.configEntries).toEqual(paged.configEntries);
    const { config } = createWorkerOptions(model, { device: "cuda" });
    expect(decoderSessionOptions(config, model).configEntries).toBeUndefined();
    expect(optionsFor("cpu", enforceEager).paged).not.toHaveProperty("cudaProviderOptions");
  }
});

test("fused products on cuda are timed for the numbers of rows that steps have", async () => {
  await using cache = await createTemporaryFolder();
  const { model } = await buildGoldenModel("llama", cache.path);
  const timedFor = (maxNumBatchedTokens: number, maxNumSequences: number) => {
    const { config } = createWorkerOptions(model, { device: "cuda", maxNumBatchedTokens, maxNumSequences });
    return slotSessionOptions(config, model).configEntries?.["ep.cuda.fpa_intb_profile_m"];
  };
  expect(timedFor(1, 1)).toBe("1");
  expect(timedFor(16, 8)).toBe("1,2,4,8,16");
  expect(timedFor(600, 8)).toBe("1,2,4,8,16,32,64,128,256,512,1024");
  expect(timedFor(16, 24)).toBe("1,2,4,8,16,32");
});
