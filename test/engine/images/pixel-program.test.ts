import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { expect, test } from "vitest";

import { createImageProcessor } from "../../../engine/images/image-processor.ts";
import { dummyPicture } from "../../../engine/multimodal/dummy-inputs.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const module = new URL("./shades.ts", import.meta.url).href;
const never = new AbortController().signal;

test("a model's own program makes tensors on a thread, and its errors arrive unchanged", async () => {
  const processor = createImageProcessor({ maxImagePixels: 10_000, numThreads: 1 });
  const picture = dummyPicture({ width: 30, height: 20 });
  const { tensors, imageSize } = await processor.runProgram(
    { bytes: picture },
    { module, options: { edge: 4 } },
    never,
  );
  expect(imageSize).toEqual({ width: 30, height: 20 });
  expect(tensors).toEqual(
    new Map<string, unknown>([
      ["shades", { elementType: "float32", shape: [3], data: Float32Array.of(255, 0, 0) }],
      ["size", { elementType: "int64", shape: [2], data: BigInt64Array.of(20n, 30n) }],
    ]),
  );
  await expect(
    processor.runProgram({ bytes: picture }, { module, options: { edge: "x" } }, never),
  ).rejects.toMatchObject({
    name: "EngineError",
    code: "unsupported_model",
    message: 'The edge "x" is no number.',
  });
  const large = dummyPicture({ width: 200, height: 100 });
  await expect(processor.runProgram({ bytes: large }, { module, options: { edge: 4 } }, never)).rejects.toMatchObject({
    code: "image_too_large",
  });
  await processor.close();
});

test.for<[string, string | null, RegExp]>([
  ["is missing", null, /^The pixel program file:.*\/mine\.mjs cannot be imported: Cannot find module/],
  ["throws", 'throw new Error("no luck");', /^The pixel program file:.*\/mine\.mjs cannot be imported: no luck\.$/],
  ["lacks its export", "export const other = 1;", /\/mine\.mjs exports no function toTensors\.$/],
])("a program of a user that %s is named", async ([, source, message]) => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "mine.mjs");
  if (source !== null) await writeFile(file, source);
  const processor = createImageProcessor({ maxImagePixels: 1000 });
  const program = { module: pathToFileURL(file).href, options: {} };
  const picture = dummyPicture({ width: 30, height: 20 });
  await expect(processor.runProgram({ bytes: picture }, program, never)).rejects.toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(message),
  });
  await processor.close();
});
