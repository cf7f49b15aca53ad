import { existsSync } from "node:fs";
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

test.for<[string, string]>([
  ["loops", "if (image.width > 30) for (;;);"],
  ["waits", "if (image.width > 30) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);"],
])("a program that %s ends its own request, and the next picture is processed", async ([, body]) => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "mine.mjs");
  await writeFile(file, `export const toTensors = (image) => { ${body} return new Map(); };`);
  const program = { module: pathToFileURL(file).href, options: {} };
  const processor = createImageProcessor({ maxImagePixels: 10_000, numThreads: 1, decodeTimeoutMs: 1000 });
  const [small, large] = [dummyPicture({ width: 30, height: 20 }), dummyPicture({ width: 60, height: 20 })];
  await expect(processor.runProgram({ bytes: large }, program, never)).rejects.toMatchObject({
    code: "internal",
    message: expect.stringMatching(/mine\.mjs did not return within 1000 ms\.$/),
    setting: "decodeTimeoutMs",
  });
  expect((await processor.runProgram({ bytes: small }, program, never)).tensors.size).toBe(0);
  await processor.close();
});

test("a program that does not return ends with the processor", async () => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "mine.mjs");
  const started = join(folder.path, "started");
  await writeFile(
    file,
    `import { writeFileSync } from "node:fs";
     export const toTensors = () => { writeFileSync(${JSON.stringify(started)}, ""); for (;;); };`,
  );
  const processor = createImageProcessor({ maxImagePixels: 1000, decodeTimeoutMs: 3_600_000 });
  const program = { module: pathToFileURL(file).href, options: {} };
  const running = processor.runProgram({ bytes: dummyPicture({ width: 30, height: 20 }) }, program, never);
  const outcome = Promise.allSettled([running]);
  await expect.poll(() => existsSync(started), { timeout: 60_000 }).toBe(true);
  await processor.close();
  expect(await outcome).toMatchObject([{ status: "rejected", reason: { code: "closed" } }]);
});

test.for<[string, string]>([
  ["keeps", "new Float32Array(2).fill(0.5)"],
  ["shares", "new Float32Array(new SharedArrayBuffer(8)).fill(0.5)"],
  ["cuts out of another", "new Float32Array(9).fill(0.5).subarray(3, 5)"],
])("a program may return an array again that it %s", async ([, array]) => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "mine.mjs");
  const returned = 'new Map([["values", { elementType: "float32", shape: [2], data }]])';
  await writeFile(file, `const data = ${array}; export const toTensors = () => ${returned};`);
  const program = { module: pathToFileURL(file).href, options: {} };
  const processor = createImageProcessor({ maxImagePixels: 1000, numThreads: 1 });
  for (let picture = 0; picture < 2; picture++) {
    const bytes = dummyPicture({ width: 30, height: 20 });
    const { tensors } = await processor.runProgram({ bytes }, program, never);
    expect(tensors.get("values")?.data).toEqual(Float32Array.of(0.5, 0.5));
  }
  await processor.close();
});

const tensor = (fields: string): string =>
  `export const toTensors = () => new Map([["values", { elementType: "float32", shape: [2], ${fields} }]]);`;

test.for<[string, string, RegExp]>([
  ["fails", 'export const toTensors = () => { throw new TypeError("no luck"); };', /mine\.mjs failed: no luck\.$/],
  [
    "returns a promise",
    "export const toTensors = async () => new Map();",
    /returned an object; expected a Map of tensors/,
  ],
  ["returns nothing", "export const toTensors = () => undefined;", /returned undefined; expected a Map of tensors/],
  ["has numbers of 64 bits", tensor("data: new Float64Array(2)"), /"values" of float32 without a Float32Array as data/],
  ["has too few numbers", tensor("data: new Float32Array(1)"), /"values" of the shape \[2\] with 1 elements, not 2\.$/],
  [
    "has no shape",
    tensor("data: new Float32Array(2), shape: 2"),
    /"values" with the shape 2; expected a list of sizes/,
  ],
  [
    "has another element type",
    tensor('data: new Uint8Array(2), elementType: "uint8"'),
    /with the element type "uint8"; expected float32 or int64/,
  ],
])("a program whose result %s ends its own request with the reason", async ([, source, message]) => {
  await using folder = await createTemporaryFolder();
  const file = join(folder.path, "mine.mjs");
  await writeFile(file, source);
  const processor = createImageProcessor({ maxImagePixels: 1000 });
  const picture = dummyPicture({ width: 30, height: 20 });
  const program = { module: pathToFileURL(file).href, options: {} };
  await expect(processor.runProgram({ bytes: picture }, program, never)).rejects.toMatchObject({
    code: "internal",
    message: expect.stringMatching(message),
  });
  await processor.close();
});
