/** Conversations with pictures at any place, in every form in which a request brings them. */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { EngineRequest, ImageFeature } from "../../../engine/core/engine-request.ts";
import type { KvLayout } from "../../../engine/models/built-model.ts";
import { embeddingsField } from "../../../engine/multimodal/processed-item.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";
import { createGoldenInputs } from "../input/golden-inputs.ts";
import type { GoldenInputs } from "../input/golden-inputs.ts";
import { expectSameTokens } from "./conversations.ts";
import { buildGoldenModel, createWorkerOptions, SteppedEngine } from "./golden-engine.ts";
import type { GoldenModel } from "./golden-engine.ts";

const maxModelLen = 256;
const maxPictures = 3;
const pictures = ["drawing.png", "photo.png", "small.png"];

/** A picture by its index, or text. */
type Part = number | readonly number[];

const part: fc.Arbitrary<Part> = fc.oneof(
  fc.nat(pictures.length - 1),
  fc.array(fc.integer({ min: 5, max: 60 }), { minLength: 1, maxLength: 30 }),
);
const turn = fc.record({
  /** An earlier turn to go on from; otherwise a new conversation. */
  base: fc.nat(8),
  numKept: fc.nat(6),
  parts: fc.array(part, { minLength: 1, maxLength: 4 }),
  /** `cached`: its features under its hash. `given`: features that the request brought itself. */
  form: fc.constantFrom("pixels", "cached", "given"),
  maxTokens: fc.constantFrom(1, 20, 60),
  repetitionPenalty: fc.constantFrom(1, 1.3),
  priority: fc.constantFrom(0, 0, 1),
  numSteps: fc.nat(3),
  isAborted: fc.nat(5).map((value) => value === 0),
});
const settings = fc.record({
  maxNumSequences: fc.constantFrom(2, 8),
  maxNumBatchedTokens: fc.constantFrom(5, 24, 200),
  /** The fewest, or some more. */
  numBlocks: fc.constantFrom(33, 40),
});

const slots: KvLayout = { kind: "slots" };
const paged: KvLayout = { kind: "paged", blockSize: 8 };
const variants: readonly (readonly [name: "qwen2-vl" | "llava-default", kvLayout: KvLayout])[] = [
  // With positions on three axes.
  ["qwen2-vl", slots],
  ["qwen2-vl", paged],
  ["llava-default", slots],
  ["llava-default", paged],
];

describe.for(variants)("%s over %o", ([name, kvLayout]) => {
  let cache: TemporaryFolder;
  let golden: GoldenModel;
  let inputs: GoldenInputs;

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    golden = await buildGoldenModel(name, cache.path, "float32", kvLayout);
    inputs = await createGoldenInputs(name);
  });

  afterAll(async () => {
    await inputs[Symbol.asyncDispose]();
    await cache[Symbol.asyncDispose]();
  });

  const createEngine = (overrides: Parameters<typeof createWorkerOptions>[1]): Promise<SteppedEngine> =>
    SteppedEngine.create({
      ...createWorkerOptions(golden.model, overrides),
      maxModelLen,
      maxEmbeddingsPerImage: inputs.imageInputs!.info.maxTokensPerItem,
    });

  async function promptOf(
    parts: readonly Part[],
  ): Promise<Pick<EngineRequest, "promptTokenIds" | "images" | "positions">> {
    const { imagePlaceholderTokenIds } = inputs.imageInputs!.processor;
    const tokenIds = parts.flatMap((each) => (typeof each === "number" ? imagePlaceholderTokenIds : each));
    const references = parts.flatMap((each) => (typeof each === "number" ? [pictureReference(pictures[each]!)] : []));
    const images = (await Promise.all(references)).map((reference) => ({ type: "image", reference }) as const);
    const prompt = { kind: "tokens", tokenIds, images } as const;
    const processed = await inputs.inputProcessor.process({ prompt }, new AbortController().signal);
    const { promptTokenIds, positions } = processed;
    return { promptTokenIds, images: processed.images, ...(positions && { positions }) };
  }

  function inForm(form: "cached" | "given", image: ImageFeature, { embeddings }: SteppedEngine): ImageFeature {
    const features = embeddings.get(image.mmHash);
    if (features === undefined) return image;
    const mmHash = form === "given" ? `given ${image.mmHash}` : image.mmHash;
    return { ...image, mmHash, tensors: new Map([[embeddingsField, features]]) };
  }

  test("give the answers of an engine that computes one whole request after the other", async () => {
    let numPreemptions = 0;
    let numHits = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(turn, { minLength: 6, maxLength: 12 }), settings, async (turns, overrides) => {
        using reference = await createEngine({ enablePrefixCaching: false });
        using engine = await createEngine(overrides);
        const conversations: (readonly Part[])[] = [];
        await expectSameTokens({ engine, reference }, turns, async ({ form, ...each }, index, earlier) => {
          const from = conversations[each.base];
          const answer = from === undefined ? [] : reference.tokensOf(earlier[each.base]!.requestId);
          const kept = from === undefined ? [] : [...from, answer.filter((id) => id !== golden.model.imageTokenId)];
          const parts = [...kept.slice(0, each.numKept), ...each.parts].filter(
            (one, place, all) => typeof one !== "number" || countPictures(all.slice(0, place)) < maxPictures,
          );
          conversations.push([...parts, [7]]);
          const { images, ...prompt } = await promptOf(conversations.at(-1)!);
          const { maxTokens, repetitionPenalty, priority } = each;
          return {
            ...prompt,
            requestId: `${index}`,
            images: form === "pixels" ? images : images.map((image) => inForm(form, image, reference)),
            samplingParams: createSamplingParams({ temperature: 0, repetitionPenalty, maxTokens, ignoreEos: true }),
            badWordsTokenIds: [],
            cacheSalt: null,
            grammar: null,
            seed: index,
            priority,
          };
        });
        numPreemptions += engine.stats.numPreemptions;
        numHits += engine.stats.numPrefixCacheHits;
      }),
      // Shrinking takes longer than a test may.
      { numRuns: 8, seed: 5, endOnFailure: true },
    );
    // All slots have memory for the longest sequence.
    expect(numPreemptions > 0).toBe(kvLayout.kind === "paged");
    expect(numHits).toBeGreaterThan(0);
  });
});

function countPictures(parts: readonly Part[]): number {
  return parts.filter((each) => typeof each === "number").length;
}
