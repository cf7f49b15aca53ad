import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";

import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import type { ImageSource } from "../../../engine/images/image-source.ts";
import type { ItemTensor } from "../../../engine/multimodal/processed-item.ts";
import { loadGoldens, pictureReference } from "../../support/checkpoints/goldens.ts";
import { createGoldenInputs, imageLimits } from "./golden-inputs.ts";
import { chat, image, userSays } from "./requests.ts";

const never = new AbortController().signal;

test("ids, pixel values and placeholders equal those of transformers, with 0, 1 and 3 images", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const { cases } = await loadGoldens("llava-default");
  expect(cases.map(({ pictures }) => pictures.length)).toEqual([0, 1, 3]);
  for (const golden of cases) {
    const references = await Promise.all(golden.pictures.map(pictureReference));
    const messages = golden.messages.map(({ role, content }) => ({
      role,
      content: content.map((part) => (part.type === "image" ? image(references.shift() as string) : part)),
    }));
    const { promptTokenIds, images } = await inputs.inputProcessor.process(chat(...messages), never);
    expect(promptTokenIds).toEqual(golden.promptTokenIds);
    expect(images).toHaveLength(golden.pictures.length);
    for (const [index, { tensors, placeholder }] of images.entries()) {
      expect([...tensors.keys()]).toEqual(["pixel_values"]);
      const { shape, data: pixelValues } = tensors.get("pixel_values") as ItemTensor<"float32">;
      expect(shape).toEqual([3, 32, 32]);
      const expected = golden.pixelValues?.subarray(index * pixelValues.length, (index + 1) * pixelValues.length);
      const largest = Math.max(...pixelValues.map((value, at) => Math.abs(value - (expected?.[at] ?? Number.NaN))));
      // 1/255 of brightness, in units of CLIP's smallest deviation.
      expect(largest).toBeLessThanOrEqual(1 / 255 / 0.26 + 1e-6);
      const { offset, length } = placeholder;
      expect(new Set(promptTokenIds.slice(offset, offset + length))).toEqual(new Set([2]));
    }
  }
});

test("equal pictures have equal hashes, different ones do not", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const [drawing, photo] = [await pictureReference("drawing.png"), await pictureReference("photo.png")];
  const { images } = await inputs.inputProcessor.process(userSays("?", drawing, photo, drawing), never);
  expect(images[0]!.mmHash).toBe(images[2]!.mmHash);
  expect(images[0]!.mmHash).not.toBe(images[1]!.mmHash);
});

test("when one image fails, the others are cancelled and have ended", async () => {
  const ended: string[] = [];
  // Never answers; its connections end only when they are cancelled.
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const slow: ImageSource = {
    schemes: ["slow"],
    fetch: async (reference, { signal }) => {
      try {
        const response = await fetch(`http://127.0.0.1:${port}/`, { signal });
        return new Uint8Array(await response.arrayBuffer());
      } finally {
        ended.push(reference);
      }
    },
  };
  await using inputs = await createGoldenInputs("llava-default", { sources: [createDataUrlImageSource(), slow] });
  const broken = "data:image/png;base64,A";
  await expect(inputs.inputProcessor.process(userSays("?", "slow:1", broken, "slow:2"), never)).rejects.toMatchObject({
    code: "invalid_image_reference",
    parameter: "prompt.images[1]",
  });
  expect(ended.sort()).toEqual(["slow:1", "slow:2"]);

  const aborting = new AbortController();
  const processing = inputs.inputProcessor.process(userSays("?", "slow:3"), aborting.signal);
  server.once("request", () => aborting.abort());
  await expect(processing).rejects.toMatchObject({ code: "aborted" });
  expect(ended).toContain("slow:3");
  server.closeAllConnections();
  server.close();
});

test("a picture above the byte limit or with an unknown scheme is the caller's error", async () => {
  await using inputs = await createGoldenInputs("llava-default");
  const tooLarge = `data:image/png;base64,${"A".repeat(imageLimits.maxImageBytes * 2)}`;
  await expect(inputs.inputProcessor.process(userSays("?", tooLarge), never)).rejects.toMatchObject({
    code: "image_too_large",
  });
  await expect(inputs.inputProcessor.process(userSays("?", "ftp://host/x"), never)).rejects.toMatchObject({
    code: "invalid_image_reference",
  });
});
