import { expect, test } from "vitest";

import { createWorstCaseRequests } from "../../../engine/inspection/worst-case-requests.ts";
import type { WorstImage } from "../../../engine/inspection/worst-image.ts";

const worstImage: WorstImage = {
  size: { width: 336, height: 336 },
  boundedBy: "model",
  reference: "data:image/png;base64,",
  placeholderTokenIds: [2],
  numTokens: 576,
  numEmbeddings: 576,
  numBytes: 1_354_752,
  maxEmbeddings: 576,
  maxPerPrompt: 16,
  numFitting: 7,
};

test.for([
  { maxModelLen: 4096, maxNumSequences: 8, maxNumBatchedTokens: 512 },
  { maxModelLen: 600, maxNumSequences: 4, maxNumBatchedTokens: 512 },
  { maxModelLen: 2, maxNumSequences: 1, maxNumBatchedTokens: 1 },
])("requests fill sequences of $maxModelLen tokens exactly, and no two are alike", (settings) => {
  const { maxModelLen, maxNumSequences } = settings;
  const requests = createWorstCaseRequests({ maxModelLen, vocabSize: 1000, worstImage }, settings);
  expect(requests).toHaveLength(maxNumSequences);
  const beginnings = new Set<number>();
  const uuids = new Set<string>();
  for (const { prompt, samplingParams } of requests) {
    if (prompt.kind !== "tokens") throw new Error("the prompt is of token ids");
    const { tokenIds, images = [] } = prompt;
    expect(tokenIds.filter((tokenId) => tokenId === 2)).toHaveLength(images.length);
    const numPromptTokens = tokenIds.length + images.length * (worstImage.numTokens - 1);
    expect(numPromptTokens).toBeLessThan(maxModelLen);
    expect(numPromptTokens + samplingParams.maxTokens!).toBeGreaterThanOrEqual(Math.min(2, maxModelLen - 1));
    expect(numPromptTokens + samplingParams.maxTokens!).toBeLessThanOrEqual(maxModelLen);
    beginnings.add(tokenIds[0]!);
    for (const image of images) if (image.type === "image") uuids.add(image.uuid!);
  }
  expect(beginnings.size).toBe(maxNumSequences);
  const { prompt } = requests[0]!;
  const numImages = prompt.kind === "tokens" ? (prompt.images ?? []).length : 0;
  expect(uuids.size).toBe(numImages * maxNumSequences);
});

test("answers are long enough that all sequences run at once", () => {
  const settings = { maxNumSequences: 8, maxNumBatchedTokens: 512 };
  const { samplingParams } = createWorstCaseRequests(
    { maxModelLen: 4096, vocabSize: 1000, worstImage: null },
    settings,
  )[0]!;
  // 8 * 4096 tokens, 504 a step beside 8 that decode: 66 steps.
  expect(samplingParams.maxTokens).toBeGreaterThanOrEqual(66);
});
