/** Logprobs of prompts whose pictures a decoder must compute whole. */
import { expect, test } from "vitest";

import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { embeddingsField } from "../../../engine/multimodal/processed-item.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";

/** More than the rows of logits that are in memory at once. */
const numEmbeddings = 70;

test.for([
  ["llava-default", { kind: "slots" }],
  ["llava-default", { kind: "paged", blockSize: 16 }],
  ["onnx-exports/llava", { kind: "slots" }],
] as const)("%s over %o: a whole picture has the logprobs of its pieces", async ([name, kvLayout]) => {
  await using cache = await createTemporaryFolder();
  const { model, cases } = await buildGoldenModel(name, cache.path, "float32", kvLayout);
  const { imageWidth } = model.decoder;
  const data = Float32Array.from({ length: numEmbeddings * imageWidth }, (_, index) => Math.sin(index));
  const embeddings = { elementType: "float32", shape: [numEmbeddings, imageWidth], data } as const;
  const picture = Array.from({ length: numEmbeddings }, () => model.imageTokenId!);
  const request: EngineRequest = {
    ...goldenRequest("request", cases[0]!, model, { promptLogprobs: 0, maxTokens: 1 }),
    promptTokenIds: [5, 6, ...picture, 7, 8, 9],
    images: [
      {
        tensors: new Map([[embeddingsField, embeddings]]),
        mmHash: "picture",
        placeholder: { offset: 2, length: numEmbeddings, isEmbed: null },
      },
    ],
  };
  // Attention is causal here, so both ways have the same predictions.
  const logprobsOf = async (keepsImagesWhole: boolean): Promise<number[]> => {
    const options = createWorkerOptions({ ...model, decoder: { ...model.decoder, keepsImagesWhole } });
    using engine = await SteppedEngine.create({ ...options, maxEmbeddingsPerImage: numEmbeddings });
    engine.add(request);
    await engine.runToEnd();
    return engine.generations.get("request")!.outputs[0]!.promptLogprobs!.map(({ sampled }) => sampled.logprob);
  };
  const whole = await logprobsOf(true);
  const pieces = await logprobsOf(false);
  expect(whole).toHaveLength(request.promptTokenIds.length - 1);
  expect(Math.max(...whole.map((logprob, index) => Math.abs(logprob - pieces[index]!)))).toBeLessThan(1e-3);
});
