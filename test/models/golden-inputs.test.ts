/** Holds the processors of the models to what transformers makes of the same conversations and pictures. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

import type { ChatMessage, ImagePart } from "../../engine/generation-request.ts";
import { parseTileOptions, tileGrid } from "../../engine/models/idefics3/tiles.ts";
import type { ItemTensor } from "../../engine/multimodal/processed-item.ts";
import { createSamplingParams } from "../../engine/sampling-params.ts";
import { createGoldenInputs } from "../engine/golden-inputs.ts";
import { goldensFolder, loadGoldens, pictureReference, type GoldenCase } from "../support/goldens.ts";

const never = new AbortController().signal;
/** One step of 255, in units of a deviation of 0.5. */
const oneStep = 2 / 255 + 1e-6;

async function messagesOf(golden: GoldenCase): Promise<ChatMessage[]> {
  const references = await Promise.all(golden.pictures.map(pictureReference));
  return golden.messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "image" ? ({ type: "image", reference: references.shift()! } satisfies ImagePart) : part,
    ),
  }));
}

test.for(["llava-siglip", "smolvlm"] as const)("%s: ids and pixel values are those of transformers", async (name) => {
  await using inputs = await createGoldenInputs(name);
  const { cases } = await loadGoldens(name);
  for (const golden of cases) {
    const prompt = { kind: "chat", messages: await messagesOf(golden), addGenerationPrompt: true } as const;
    const request = { requestId: "request", prompt, samplingParams: createSamplingParams() };
    const { promptTokenIds, images } = await inputs.inputProcessor.process(request, never);
    expect(promptTokenIds).toEqual(golden.promptTokenIds);
    expect(images).toHaveLength(golden.pictures.length);
    let at = 0;
    for (const { tensors } of images) {
      const { data } = tensors.get("pixel_values") as ItemTensor<"float32">;
      const expected = golden.pixelValues!.subarray(at, at + data.length);
      const largest = data.reduce((max, value, index) => Math.max(max, Math.abs(value - expected[index])), 0);
      expect(largest).toBeLessThanOrEqual(oneStep);
      at += data.length;
    }
    expect(at).toBe(golden.pixelValues?.length ?? 0);
  }
});

interface RecordedGrid {
  readonly width: number;
  readonly height: number;
  readonly rows: number;
  readonly columns: number;
}

test("pictures of every shape are cut into the tiles that transformers cuts", () => {
  const recorded = JSON.parse(readFileSync(join(goldensFolder, "smolvlm/tile_grids.json"), "utf8")) as RecordedGrid[];
  const options = parseTileOptions({ size: { longest_edge: 72 }, max_image_size: { longest_edge: 24 } });
  for (const { width, height, ...expected } of recorded) {
    const { rows, columns } = tileGrid({ width, height }, options);
    expect({ width, height, rows, columns }).toEqual({ width, height, ...expected });
  }
});

test("a request may have its picture left whole", async () => {
  await using inputs = await createGoldenInputs("smolvlm");
  const reference = await pictureReference("drawing.png");
  const prompt = {
    kind: "text",
    text: "<image>?",
    addSpecialTokens: false,
    images: [{ type: "image", reference }],
  } as const;
  const request = {
    requestId: "request",
    prompt,
    samplingParams: createSamplingParams(),
    mmProcessorOptions: { do_image_splitting: false },
  };
  const { images } = await inputs.inputProcessor.process(request, never);
  expect(images[0].tensors.get("pixel_values")?.shape).toEqual([1, 3, 24, 24]);
  expect(images[0].placeholder.isEmbed?.filter(Boolean)).toHaveLength(4);
});

test.for([
  [{ do_resize: false }, "do_resize = false"],
  [{ do_thumbnail: true }, "the field do_thumbnail"],
] as const)("tiles under %o are refused: %s", ([options, reason]) => {
  expect(() => parseTileOptions(options)).toThrow(
    expect.objectContaining({ code: "unsupported_model", message: expect.stringContaining(reason) }),
  );
});
