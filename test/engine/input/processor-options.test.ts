/** Every option of every model's image processor, with every invalid value. */
import * as fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { createSamplingParams } from "../../../engine/contract/sampling-params.ts";
import type { ProcessedPrompt } from "../../../engine/input/input-processor.ts";
import { optionsWithoutEffect } from "../../../engine/multimodal/processor-options.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs } from "./golden-inputs.ts";
import type { GoldenInputs } from "./golden-inputs.ts";

function nested(levels: number): unknown {
  let value: unknown = 1;
  for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { a: value };
  return value;
}

const million = 1_000_000;

/** Values that JSON can contain: 1e400 is read as infinity. */
const values: readonly (readonly [name: string, value: unknown])[] = [
  ["true", true],
  ["false", false],
  ["text", "yes"],
  ["text of a megabyte", "x".repeat(million)],
  ["0", 0],
  ["-1", -1],
  ["1", 1],
  ["1.5", 1.5],
  ["1e-300", 1e-300],
  ["1e308", 1e308],
  ["-1e308", -1e308],
  ["1e400", Number.POSITIVE_INFINITY],
  ["-1e400", Number.NEGATIVE_INFINITY],
  ["2^53", 2 ** 53],
  ["255", 255],
  ["16384", 16_384],
  ["[]", []],
  ["[0.5]", [0.5]],
  ["[0, 0, 0]", [0, 0, 0]],
  ["[1e-300, 1, 1]", [1e-300, 1, 1]],
  ["[1, 1e308, 1]", [1, 1e308, 1]],
  ['[1, 1, "1"]', [1, 1, "1"]],
  ["[1, null, 1]", [1, null, 1]],
  ["[32, 32]", [32, 32]],
  ["four numbers", [1, 1, 1, 1]],
  ["a million numbers", Array.from({ length: million }, () => 0.5)],
  ["5,000 levels", nested(5_000)],
  ["9 levels", nested(9)],
  ["{}", {}],
  ["a size of 0", { height: 0, width: 0 }],
  ["a size of 1", { height: 1, width: 1 }],
  ["a size of 1e308", { height: 1e308, width: 1e308 }],
  ["a size of 16384", { height: 16_384, width: 16_384 }],
  ["shortest_edge of 16384", { shortest_edge: 16_384 }],
  ["longest_edge of 16384", { longest_edge: 16_384 }],
  ["both edges of 1", { shortest_edge: 1, longest_edge: 1 }],
  ["both edges of 2^28", { shortest_edge: 2 ** 28, longest_edge: 2 ** 28 }],
  ["a field of its own", { depth: 3 }],
  ["100,000 fields", Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`f${index}`, index]))],
];

/** Codes with which a request can be rejected, all answered with 400. */
const refusals: ReadonlySet<string> = new Set([
  "invalid_argument",
  "invalid_image",
  "image_too_large",
  "prompt_too_long",
]);

const models = ["llava-default", "llava-siglip", "qwen2-vl", "smolvlm", "fuyu"];

describe.for(models)("%s", (name) => {
  let inputs: GoldenInputs;
  let usual: ProcessedPrompt;
  let options: readonly string[];
  let reference: string;

  beforeAll(async () => {
    inputs = await createGoldenInputs(name);
    reference = await pictureReference("small.png");
    usual = await process({});
    const { processor } = inputs.imageInputs!;
    options = [...processor.requestOptions, ...Object.keys(optionsWithoutEffect), "images_kwargs", "patch_size", "x"];
  });
  afterAll(() => inputs[Symbol.asyncDispose]());

  function process(mmProcessorOptions: Record<string, unknown>): Promise<ProcessedPrompt> {
    const text = inputs.imageInputs!.processor.imagePlaceholder ?? "";
    const images = [{ type: "image", reference } as const];
    const prompt = { kind: "text", text: `${text} a`, addSpecialTokens: false, images } as const;
    const request = { requestId: "request", prompt, samplingParams: createSamplingParams(), mmProcessorOptions };
    return inputs.inputProcessor.process(request, new AbortController().signal);
  }

  /** Null if there is no problem. */
  async function problemWith(mmProcessorOptions: Record<string, unknown>): Promise<string | null> {
    try {
      const { images } = await process(mmProcessorOptions);
      const isFinite = images.every(({ tensors }) =>
        [...tensors.values()].every(({ data }) => !(data instanceof Float32Array) || data.every(Number.isFinite)),
      );
      return isFinite ? null : "values that are not finite";
    } catch (error) {
      if (!(error instanceof EngineError) || !refusals.has(error.code)) return `an error of ours: ${String(error)}`;
      if (error.message.length > 600) return `a message of ${error.message.length} characters`;
      const isAboutField = error.code !== "invalid_argument" || error.parameter?.startsWith("mmProcessorOptions");
      return isAboutField ? null : `an error without a path: ${error.message}`;
    }
  }

  test.for(values)("any %s option gives finite values or is rejected by its path", async ([, value]) => {
    for (const option of options) {
      const problem = await problemWith({ [option]: value });
      expect({ option, problem }).toEqual({ option, problem: null });
    }
    expect(await process({})).toEqual(usual);
  });

  test("the checkpoint's own values have no effect, also of options that cannot be set", async () => {
    const { options: own, requestOptions } = inputs.imageInputs!.processor;
    expect(Object.keys(own).some((option) => !requestOptions.has(option))).toBe(true);
    expect(await process(structuredClone(own))).toEqual(usual);
  });

  test("any two or three options together give finite values or are rejected by path", async () => {
    const anyValue = fc.constantFrom(...values.map(([, value]) => value));
    const changes = fc
      .array(fc.tuple(fc.constantFrom(...options), anyValue), { minLength: 2, maxLength: 3 })
      .map((entries) => Object.fromEntries(entries));
    await fc.assert(
      fc.asyncProperty(changes, async (mmProcessorOptions) => {
        expect(await problemWith(mmProcessorOptions)).toBeNull();
      }),
      { numRuns: 200, seed: 9, endOnFailure: true },
    );
    expect(await process({})).toEqual(usual);
  });
});

test("a model without an image processor accepts only options without effect", async () => {
  await using inputs = await createGoldenInputs("llama");
  const prompt = { kind: "text", text: "a", addSpecialTokens: false } as const;
  const ask = (mmProcessorOptions: Record<string, unknown>) =>
    inputs.inputProcessor.process({ prompt, mmProcessorOptions }, new AbortController().signal);
  expect((await ask({ use_fast: true })).images).toEqual([]);
  await expect(ask({ size: 32 })).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "mmProcessorOptions.size",
    message: "size cannot be set: this model has no image processor.",
  });
});

test("a request's size overrides the checkpoint's older names for the same option", async () => {
  // Of 12 x 12 pixels are the squares that become embeddings.
  const settings = { mmProcessorOptions: { min_pixels: 144, max_pixels: 576 } };
  await using inputs = await createGoldenInputs("qwen2-vl", { settings });
  const images = [{ type: "image", reference: await pictureReference("photo.png") } as const];
  const countEmbeddings = async (mmProcessorOptions: Record<string, unknown>): Promise<number> => {
    const text = inputs.imageInputs!.processor.imagePlaceholder!;
    const prompt = { kind: "text", text, addSpecialTokens: false, images } as const;
    const request = { requestId: "request", prompt, samplingParams: createSamplingParams(), mmProcessorOptions };
    const processed = await inputs.inputProcessor.process(request, new AbortController().signal);
    return processed.images[0]!.placeholder.length;
  };
  expect(await countEmbeddings({})).toBeGreaterThan(1);
  expect(await countEmbeddings({ size: { shortest_edge: 1, longest_edge: 144 } })).toBe(1);
  expect(await countEmbeddings({ max_pixels: 144 })).toBe(1);
});
