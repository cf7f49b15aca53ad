/** MiniGPT-4 against BLIP-2's parts of transformers joined to a Llama (record_minigpt4.py). */
import { expect, test } from "vitest";

import type { ContentPart, EngineConfig, Prompt } from "../../../engine/index.ts";
import { openModel } from "../../../engine/loading/open-model.ts";
import type { VisionEncoderGraph } from "../../../engine/models/built-model.ts";
import { BuiltVisionEncoder } from "../../../engine/vision/built-vision-encoder.ts";
import { loadGoldens, pictureReference, type GoldenCase } from "../../support/checkpoints/goldens.ts";
import { buildModel } from "../../support/engine/shipped-models.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { relativeError } from "../models/golden-decoding.ts";
import { answer, miniGpt4Config, miniGpt4Folder, miniGpt4Params, startEngine } from "./pipeline-engine.ts";

interface PipelineCase extends GoldenCase {
  readonly kind: "completion" | "chat";
  readonly parts: readonly (string | { readonly image: string })[];
}

const NUM_QUERY_TOKENS = 8;

async function partsOf({ parts }: PipelineCase): Promise<ContentPart[]> {
  return Promise.all(
    parts.map(async (part): Promise<ContentPart> =>
      typeof part === "string"
        ? { type: "text", text: part }
        : { type: "image", reference: await pictureReference(part.image) },
    ),
  );
}

async function toPrompt(golden: PipelineCase): Promise<Prompt> {
  const parts = await partsOf(golden);
  return golden.kind === "chat"
    ? { kind: "chat", messages: [{ role: "user", content: parts }], addGenerationPrompt: true }
    : { kind: "parts", parts, addSpecialTokens: true };
}

const loadCases = async () => (await loadGoldens("minigpt4")).cases as readonly PipelineCase[];

const PIXELS = 3 * 28 * 28;

/** The largest error of any picture's embeddings, as a share of their range. */
async function visionError(settings: Partial<EngineConfig>): Promise<{ error: number; contentHash: string }> {
  await using cache = await createTemporaryFolder();
  const config = { ...miniGpt4Config(cache.path), ...settings };
  const { checkpoint, definition } = await openModel(
    { checkpoint: `${miniGpt4Folder}/llama`, adapter: null, namedAdapters: new Map() },
    config,
  );
  const model = await buildModel(checkpoint, { ...config, definition, numThreads: 1, kvLayout: { kind: "slots" } });
  const { externalDataFolder, decoder, contentHash } = model;
  const options = { device: "cpu", deviceId: 0, numThreads: 1, externalDataFolder } as const;
  using encoder = new BuiltVisionEncoder(model.visionEncoder as VisionEncoderGraph, decoder.hiddenSize, options);
  const errors = (await loadCases()).flatMap(({ pictures, pixelValues, imageFeatures }) =>
    pictures.map((_, index) => {
      const data = pixelValues!.slice(index * PIXELS, (index + 1) * PIXELS);
      const embeddings = encoder.encode({
        mmHash: "",
        placeholder: { offset: 0, length: NUM_QUERY_TOKENS, isEmbed: null },
        tensors: new Map([["pixel_values", { elementType: "float32", shape: [3, 28, 28], data }]]),
      });
      const size = NUM_QUERY_TOKENS * decoder.hiddenSize;
      return relativeError(embeddings, imageFeatures!.slice(index * size, (index + 1) * size));
    }),
  );
  expect(errors).toHaveLength(7);
  return { error: Math.max(...errors), contentHash };
}

test("the vision graph computes the embeddings of transformers", async () => {
  expect((await visionError({})).error).toBeLessThan(1e-5);
});

test("tower and projector are quantised one by one, and each has a content hash of its own", async () => {
  const exact = await visionError({});
  const same = await visionError({ visionDtype: "float32", projectorDtype: "float32" });
  const tower = await visionError({ visionDtype: "int8", projectorDtype: "float32" });
  const projector = await visionError({ projectorDtype: "int8" });
  const both = await visionError({ pipelineParams: { ...miniGpt4Params, vision_bits: 8 } });
  expect(same).toEqual(exact);
  for (const { error } of [tower, projector, both]) {
    expect(error).toBeGreaterThan(1e-4);
    expect(error).toBeLessThan(0.1);
  }
  expect(new Set([tower.error, projector.error, both.error]).size).toBe(3);
  expect(new Set([exact, tower, projector, both].map(({ contentHash }) => contentHash)).size).toBe(4);
});

test.for(["slots", "paged"] as const)("over %s, ids and greedy tokens equal the recorded ones", async (kvLayout) => {
  await using cache = await createTemporaryFolder();
  // Fewer tokens per step than a prompt has, so that steps end inside a picture.
  await using engine = await startEngine({ ...miniGpt4Config(cache.path), kvLayout, maxNumBatchedTokens: 12 });
  expect(engine.modelInfo).toMatchObject({
    architecture: "LlamaForCausalLM",
    acceptsImages: true,
    pipeline: "minigpt4-7b",
    specialTokens: { image_token: "<ImageHere>" },
  });
  const cases = await loadCases();
  const answers = await Promise.all(cases.map(async (golden) => answer(engine, await toPrompt(golden))));
  for (const [index, golden] of cases.entries()) {
    const { promptTokenIds, tokenIds, last } = answers.at(index)!;
    expect({ name: golden.name, promptTokenIds }).toEqual({ name: golden.name, promptTokenIds: golden.promptTokenIds });
    expect({ name: golden.name, tokenIds }).toEqual({ name: golden.name, tokenIds: golden.greedyTokenIds });
    expect(last.numImageTokens).toBe(golden.pictures.length * NUM_QUERY_TOKENS);
  }
});

test("a prompt may spell the placeholders itself, and text that means no image is literal", async () => {
  await using cache = await createTemporaryFolder();
  await using engine = await startEngine(miniGpt4Config(cache.path));
  const document = (await loadCases()).find(({ name }) => name === "document")!;
  const images = await Promise.all(
    document.pictures.map(async (name) => ({ type: "image", reference: await pictureReference(name) }) as const),
  );
  const text = "text1<Img><ImageHere></Img>text2<Img><ImageHere></Img>text3";
  const spelled = await answer(engine, { kind: "text", text, addSpecialTokens: true, images });
  expect(spelled.promptTokenIds).toEqual(document.promptTokenIds);
  expect(spelled.tokenIds).toEqual(document.greedyTokenIds);
  const literal = await answer(engine, {
    kind: "chat",
    messages: [{ role: "user", content: "What is <ImageHere>?" }],
    addGenerationPrompt: true,
  });
  expect(literal.last).toMatchObject({ numImageTokens: 0 });
  const unmatched = answer(engine, { kind: "text", text: "<ImageHere>", addSpecialTokens: true });
  await expect(unmatched).rejects.toMatchObject({
    code: "invalid_argument",
    message: expect.stringMatching(/1 image placeholders \(<ImageHere>\) for 0 images/),
  });
});
