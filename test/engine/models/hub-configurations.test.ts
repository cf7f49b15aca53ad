/** Configurations of real checkpoints in their real sizes, of both generations of transformers. */
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

import { createImageInputs } from "../../../engine/input/multimodal-inputs.ts";
import type { Tokenizer } from "../../../engine/text/tokenizer.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";
import { countParameters } from "./counted-parameters.ts";

interface Entry {
  readonly name: string;
  readonly config: object;
  /** Null for a text model. */
  readonly processor: object | null;
  /** config.json as transformers 5 saves it. */
  readonly saved: object;
  readonly numParameters: number;
}

const folder = new URL("../../fixtures/hub-configurations/", import.meta.url);
const entries = JSON.parse(readFileSync(new URL("configurations.json", folder), "utf8")) as Entry[];

test.for(entries)("$name is read in both forms, with as many parameters as in transformers", (entry) => {
  for (const config of [entry.config, entry.saved]) {
    expect(countParameters(config)).toBe(entry.numParameters);
  }
});

const imageLimits = { maxImagesPerPrompt: 1, maxImageBytes: 2 ** 26, maxImagePixels: 2 ** 26, fetchTimeoutMs: 1000 };
/** The tokens of images exist; no prompt is made. */
const tokenizer = { token: (id: number) => `<${id}>`, tokenId: (text: string) => text.length } as unknown as Tokenizer;

/** What the fast image processors of transformers 4.5x write beside the options that their model has. */
const fastFields = {
  crop_size: null,
  data_format: "channels_first",
  default_to_square: true,
  device: null,
  disable_grouping: null,
  do_center_crop: null,
  do_convert_rgb: true,
  do_pad: null,
  input_data_format: null,
  pad_size: null,
  return_tensors: null,
};

/** One checkpoint for each file of an image processor. */
const withProcessors = [...new Map(entries.map((entry) => [JSON.stringify(entry.processor), entry])).values()].filter(
  ({ processor }) => processor !== null,
);

test.for(withProcessors)(
  "the image processor of $name is read, also as a fast one writes its fields",
  async (entry) => {
    const graphs = configureGraphs(entry.config, { dtype: "float32", device: "cpu", maxModelLen: 2048 });
    const { definition, model } = graphs;
    const parts = { definition, model: { ...model, contentHash: "" }, tokenizer, imageSources: [] };
    const numTokens: number[] = [];
    for (const preprocessorConfig of [entry.processor, { ...fastFields, ...entry.processor }]) {
      await using inputs = createImageInputs({ imageLimits }, { ...parts, preprocessorConfig });
      numTokens.push(inputs!.info.numImageTokens({ width: 1024, height: 768 }));
      expect(numTokens[0]).toBeLessThanOrEqual(inputs!.info.maxTokensPerItem);
    }
    expect(numTokens[0]).toBeGreaterThan(100);
    expect(numTokens[1]).toBe(numTokens[0]);
  },
);

test("a missing file of the image processor is named if the defaults do not fit the tower", () => {
  const { config } = entries.find(({ name }) => name === "Qwen3-VL-2B")!;
  const { definition, model } = configureGraphs(config, { dtype: "float32", device: "cpu", maxModelLen: 2048 });
  const parts = { definition, model: { ...model, contentHash: "" }, tokenizer, imageSources: [] };
  expect(() => createImageInputs({ imageLimits }, { ...parts, preprocessorConfig: null })).toThrow(
    /^The checkpoint has no preprocessor_config\.json, .* squares of 28 pixels .* expects 32 and 1536\.$/,
  );
});
