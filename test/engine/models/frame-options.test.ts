import { expect, test } from "vitest";

import { createHubInputs } from "../input/golden-inputs.ts";

const large = { width: 1920, height: 1080 };
/** By checkpoint: embeddings of a tile. */
const checkpoints = [
  ["granite-docling", 4],
  ["granite-for-docling", 4],
  // Of 4 x 4, and the end of a row.
  ["granite4-vision", 17],
  ["llava-next", 17],
  // 5 x 3 squares of at most 16.
  ["lfm2-vl", 15],
  // 3 x 2 squares, which have about as many pixels as 2 x 2.
  ["minicpm-v-4.7", 6],
] as const;

test.for(checkpoints)("%s shows a frame of a video in one tile", async ([name, numEmbeddings]) => {
  await using inputs = await createHubInputs(name);
  const { processor } = inputs.imageInputs!;
  expect(processor.videos).toBeUndefined();
  const ofFrames = processor.frameOptions!(processor.options);
  expect(() => processor.checkOptions(ofFrames)).not.toThrow();
  expect(processor.numImageTokens(large, ofFrames)).toBe(numEmbeddings);
  expect(processor.numImageTokens(large, processor.options)).toBeGreaterThan(numEmbeddings);
});
