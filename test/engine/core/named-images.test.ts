/** Images that a client has given the name of another one, which is still in the encoder cache. */
import { expect, test } from "vitest";

import type { EngineRequest } from "../../../engine/core/engine-request.ts";
import { embeddingsField } from "../../../engine/multimodal/processed-item.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { buildGoldenModel, createWorkerOptions, goldenRequest, SteppedEngine } from "./golden-engine.ts";

test.for([{ kind: "slots" }, { kind: "paged", blockSize: 16 }] as const)(
  "a larger image has its own embeddings, and none of an image beside the one of its name: %o",
  async (kvLayout) => {
    await using cache = await createTemporaryFolder();
    const { model, cases } = await buildGoldenModel("llava-default", cache.path, "float32", kvLayout);
    const { imageWidth } = model.decoder;
    const ask = (requestId: string, mmHash: string, numEmbeddings: number): EngineRequest => {
      const data = Float32Array.from({ length: numEmbeddings * imageWidth }, (_, index) =>
        Math.sin(index * requestId.length),
      );
      const embeddings = { elementType: "float32", shape: [numEmbeddings, imageWidth], data } as const;
      const picture = Array.from({ length: numEmbeddings }, () => model.imageTokenId!);
      return {
        ...goldenRequest(requestId, cases[0]!, model, { maxTokens: 8, logprobs: 0, ignoreEos: true }),
        promptTokenIds: [5, 6, ...picture, 7, 8, 9],
        images: [
          {
            tensors: new Map([[embeddingsField, embeddings]]),
            mmHash,
            placeholder: { offset: 2, length: numEmbeddings, isEmbed: null },
          },
        ],
        cacheSalt: requestId,
      };
    };
    const larger = ask("larger", "named", 12);
    const answersAfter = async (...earlier: readonly EngineRequest[]): Promise<unknown> => {
      using engine = await SteppedEngine.create(createWorkerOptions(model));
      for (const request of [...earlier, larger]) {
        engine.add(request);
        await engine.runToEnd();
      }
      return engine.generations.get("larger")!.outputs.map(({ tokenIds, logprobs }) => ({
        tokenIds,
        logprob: logprobs![0]!.sampled.logprob.toFixed(3),
      }));
    };
    expect(await answersAfter(ask("first", "named", 4), ask("beside", "other", 8))).toEqual(await answersAfter());
  },
);
