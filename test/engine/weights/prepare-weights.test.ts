import { spawn } from "node:child_process";
import { hash } from "node:crypto";
import { once } from "node:events";
import { open, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { openCheckpoint } from "../../../engine/weights/checkpoint.ts";
import { prepareWeights, type PrepareWeightsOptions } from "../../../engine/weights/prepare-weights.ts";
import type { PreparedWeight, WeightFormat, WeightRequest } from "../../../engine/weights/prepared-weights.ts";
import { quantizeBlockwise, quantizePerChannel } from "../../../engine/weights/quantize.ts";
import type { StoredTensor } from "../../../engine/weights/stored-tensor.ts";
import {
  encodeWithHeader,
  floatTensor,
  writeCheckpoint,
  writeShardedCheckpoint,
  type SafetensorsTensor,
} from "../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const float32: WeightFormat = { kind: "plain", elementType: "float32" };
const float16: WeightFormat = { kind: "plain", elementType: "float16" };
const bfloat16: WeightFormat = { kind: "plain", elementType: "bfloat16" };
const int4: WeightFormat = { kind: "blockwise", bits: 4, blockSize: 32 };
const int8: WeightFormat = { kind: "blockwise", bits: 8, blockSize: 32 };
const perChannel: WeightFormat = { kind: "per-channel-int8" };

function waves(length: number): Float32Array {
  return Float32Array.from({ length }, (_, index) => Math.sin(index * 1.7) * (1 + (index % 13)));
}

async function bytesOf({ file, byteOffset, byteLength }: StoredTensor): Promise<ArrayBuffer> {
  const bytes = await readFile(file);
  return Uint8Array.from(bytes.subarray(byteOffset, byteOffset + byteLength)).buffer;
}

async function prepareIn(
  folder: string,
  requests: readonly WeightRequest[],
  options: Partial<PrepareWeightsOptions> = {},
): Promise<ReadonlyMap<string, PreparedWeight>> {
  const cacheFolder = join(folder, "cache");
  const checkpoint = await openCheckpoint(folder, { cacheFolder });
  return prepareWeights(checkpoint, requests, { cacheFolder, numThreads: 2, ...options });
}

/** One weight, requested with its name and shape in the checkpoint. */
function requestFor(tensor: SafetensorsTensor, format: WeightFormat): WeightRequest {
  return { name: `graph.${tensor.name}`, sources: [tensor.name], shape: tensor.shape, format };
}

test("a tensor already stored in the wanted type stays in the checkpoint, and nothing is written", async () => {
  await using folder = await createTemporaryFolder();
  const tensor = floatTensor("a", [2, 3], waves(6));
  await writeCheckpoint(folder.path, {}, [tensor]);
  const { weight, scales } = (await prepareIn(folder.path, [requestFor(tensor, float32)])).get("graph.a")!;
  expect(weight.file).toBe(join(folder.path, "model.safetensors"));
  expect(new Float32Array(await bytesOf(weight))).toEqual(waves(6));
  expect(scales).toBeNull();
  expect(await readdir(folder.path)).not.toContain("cache");
});

test("a tensor at an odd address of an unpadded file is moved to an aligned one", async () => {
  await using folder = await createTemporaryFolder();
  const header = {
    a: { dtype: "U8", shape: [3], data_offsets: [0, 3] },
    b: { dtype: "F32", shape: [2], data_offsets: [3, 11] },
  };
  await writeCheckpoint(folder.path, {}, []);
  const parts = [new Uint8Array(3), new Uint8Array(Float32Array.of(1.5, -2).buffer)];
  await writeFile(join(folder.path, "model.safetensors"), encodeWithHeader(header, parts));
  const request = { name: "b", sources: ["b"], shape: [2], format: float32 };
  const { weight } = (await prepareIn(folder.path, [request])).get("b")!;
  expect(weight.byteOffset % 64).toBe(0);
  expect(new Float32Array(await bytesOf(weight))).toEqual(Float32Array.of(1.5, -2));
});

const special = [0, -0, 1e-7, 6.1e-5, 1 + 2 ** -11, 3.140625, -60000, Infinity, -Infinity];

test.for(["F32", "F16", "BF16"] as const)(
  "%s becomes float32 exactly and float16 to the nearest value",
  async (dtype) => {
    await using folder = await createTemporaryFolder();
    const tensor = floatTensor("a", [3, 3, 1], special, dtype);
    await writeCheckpoint(folder.path, {}, [tensor]);
    const requests = [
      { ...requestFor(tensor, float32), name: "as float32" },
      { ...requestFor(tensor, float16), name: "as float16" },
    ];
    const prepared = await prepareIn(folder.path, requests);
    const [wide, narrow] = [prepared.get("as float32")!.weight, prepared.get("as float16")!.weight];
    expect([wide.shape, narrow.shape]).toEqual([tensor.shape, tensor.shape]);
    expect([...new Float32Array(await bytesOf(wide))]).toEqual(valuesOf(tensor));
    expect(new Float16Array(await bytesOf(narrow))).toEqual(Float16Array.from(valuesOf(tensor)));
  },
);

/** The exact stored values, computed independently. */
function valuesOf({ dtype, bytes }: SafetensorsTensor): readonly number[] {
  const { buffer } = bytes.slice();
  if (dtype === "F32") return [...new Float32Array(buffer)];
  if (dtype === "F16") return [...new Float16Array(buffer)];
  return Array.from(new Uint16Array(buffer), (half) => new Float32Array(Uint32Array.of(half * 65536).buffer)[0]!);
}

const concatenated: WeightRequest = { name: "qkv", sources: ["q", "k", "v"], shape: [700, 48], format: int4 };

/** Bytes as hashes: a matcher would print millions of elements. */
interface Content {
  readonly shape: readonly number[];
  readonly weight: string;
  readonly scales: string | null;
}

function hashOf(bytes: ArrayBufferLike): string {
  return hash("sha256", new Uint8Array(bytes));
}

/** The result for a whole matrix, without files or threads. */
function convertWhole(values: Float32Array, rows: number, columns: number, format: WeightFormat): Content {
  switch (format.kind) {
    case "plain": {
      const dtype = { float32: "F32", float16: "F16", bfloat16: "BF16" } as const;
      const { bytes } = floatTensor("whole", [rows, columns], values, dtype[format.elementType]);
      return { shape: [rows, columns], weight: hashOf(bytes.buffer), scales: null };
    }
    case "blockwise": {
      const shape = [rows, Math.ceil(columns / format.blockSize), (format.blockSize * format.bits) / 8];
      const { weight, scales } = quantizeBlockwise(values, rows, columns, format);
      return { shape, weight: hashOf(weight.buffer), scales: hashOf(scales.buffer) };
    }
    case "per-channel-int8": {
      const { weight, scales } = quantizePerChannel(values, rows, columns);
      return { shape: [columns, rows], weight: hashOf(weight.buffer), scales: hashOf(scales.buffer) };
    }
    case "stored-blocks":
    case "stored-channels":
      throw new Error(`float weights have no codes of ${format.kind}`);
    default:
      return format satisfies never;
  }
}

async function contentOf({ weight, scales }: PreparedWeight): Promise<Content> {
  return {
    shape: weight.shape,
    weight: hashOf(await bytesOf(weight)),
    scales: scales && hashOf(await bytesOf(scales)),
  };
}

test.for([float32, float16, bfloat16, int4, int8, perChannel])(
  "several tensors of several shards are one weight, as if converted whole: %o",
  async (format) => {
    await using folder = await createTemporaryFolder();
    const sources = [
      floatTensor("q", [300, 48], waves(300 * 48).map(Math.cos), "F16"),
      floatTensor("k", [1, 48], waves(48), "F32"),
      floatTensor("v", [399, 48], waves(399 * 48), "BF16"),
    ];
    const [q, k, v] = sources;
    await writeShardedCheckpoint(folder.path, {}, [[v!, q!], [k!]]);
    const prepared = await prepareIn(folder.path, [{ ...concatenated, format }]);
    const whole = Float32Array.from(sources.flatMap(valuesOf));
    const weight = prepared.get("qkv")!;
    expect(await contentOf(weight)).toEqual(convertWhole(whole, 700, 48, format));
    expect(weight.weight.byteOffset % 64).toBe(0);
    expect((weight.scales?.byteOffset ?? 0) % 64).toBe(0);
  },
);

// 6 MB of bfloat16: enough for threads to be started.
const largeShape = [3000, 1024] as const;
const largeTensor = floatTensor("large", largeShape, waves(3000 * 1024), "BF16");

test("threads write the same bytes as one thread, and report all of them as progress", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [largeTensor]);
  const formats = [int4, int8, perChannel, float32];
  const sources = [largeTensor.name];
  const requests = formats.map((format, index) => ({ name: `${index}`, sources, shape: largeShape, format }));
  const progress: number[] = [];
  const prepared = await prepareIn(folder.path, requests, {
    onProgress: ({ completed, total }) => {
      progress.push(completed);
      expect(total).toBe(4 * largeTensor.bytes.byteLength);
    },
  });
  expect(progress.at(-1)).toBe(4 * largeTensor.bytes.byteLength);
  expect(progress).toEqual(progress.toSorted((left, right) => left - right));

  const values = Float32Array.from(valuesOf(largeTensor));
  for (const [index, format] of formats.entries()) {
    expect(await contentOf(prepared.get(`${index}`)!)).toEqual(convertWhole(values, ...largeShape, format));
  }
});

test("a second start reuses the file; a truncated file or one with another header is made again", async () => {
  await using folder = await createTemporaryFolder();
  const tensor = floatTensor("a", [40, 64], waves(40 * 64));
  await writeCheckpoint(folder.path, {}, [tensor]);
  const prepare = async (): Promise<StoredTensor> =>
    (await prepareIn(folder.path, [requestFor(tensor, int4)])).get("graph.a")!.weight;
  const { file } = await prepare();
  const whole = await readFile(file);
  const { ino } = await stat(file);
  await prepare();
  expect((await stat(file)).ino).toBe(ino);

  const damages: readonly (() => Promise<void>)[] = [
    () => truncate(file, whole.byteLength - 1),
    () => truncate(file, 100),
    () => truncate(file, 0),
    async () => {
      const handle = await open(file, "r+");
      await handle.write("x", 20);
      await handle.close();
    },
    () => rm(file),
  ];
  for (const damage of damages) {
    await damage();
    expect((await prepare()).file).toBe(file);
    expect((await readFile(file)).equals(whole)).toBe(true);
  }
});

test("another format and an altered checkpoint get separate files", async () => {
  await using folder = await createTemporaryFolder();
  const tensor = floatTensor("a", [4, 32], waves(128));
  const fileFor = async (format: WeightFormat): Promise<string> =>
    (await prepareIn(folder.path, [requestFor(tensor, format)])).get("graph.a")!.weight.file;
  await writeCheckpoint(folder.path, {}, [tensor]);
  const files = [await fileFor(int4), await fileFor(int8)];
  await writeCheckpoint(folder.path, {}, [floatTensor("a", [4, 32], waves(128).map(Math.cos))]);
  files.push(await fileFor(int4));
  expect(new Set(files).size).toBe(3);
});

const childProgram = fileURLToPath(new URL("../../support/checkpoints/prepare-weights-child.ts", import.meta.url));

async function prepareInChild(
  folder: string,
  mode: "kill" | "" = "",
): Promise<{ readonly file: string; readonly signal: string | null; readonly errors: string }> {
  const request = JSON.stringify(requestFor(largeTensor, int4));
  const child = spawn(process.execPath, [childProgram, folder, join(folder, "cache"), request, mode], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const exited = once(child, "exit");
  const [file, errors] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [, signal] = (await exited) as [number | null, string | null];
  return { file, signal, errors };
}

test("two processes at once both get the whole file", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [largeTensor]);
  const children = await Promise.all([prepareInChild(folder.path), prepareInChild(folder.path)]);
  expect(children.map(({ errors }) => errors)).toEqual(["", ""]);
  const { weight } = (await prepareIn(folder.path, [requestFor(largeTensor, int4)])).get("graph.large")!;
  expect(children.map(({ file }) => file)).toEqual([weight.file, weight.file]);
  expect(await readdir(join(folder.path, "cache", "weights"))).toHaveLength(1);
});

test("a process killed in the middle leaves nothing that looks complete, and the next one removes its leftovers", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [largeTensor]);
  const weightsFolder = join(folder.path, "cache", "weights");
  for (let numKilled = 0; numKilled < 2; numKilled++) {
    expect((await prepareInChild(folder.path, "kill")).signal).toBe("SIGKILL");
    expect(await readdir(weightsFolder)).toEqual([expect.stringMatching(/\.partial$/)]);
  }
  await prepareIn(folder.path, [requestFor(largeTensor, int4)]);
  expect(await readdir(weightsFolder)).toEqual([expect.stringMatching(/\.bin$/)]);
});

test("an abort ends the work and leaves nothing", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [largeTensor]);
  const controller = new AbortController();
  const aborted = prepareIn(folder.path, [requestFor(largeTensor, int4)], {
    signal: controller.signal,
    onProgress: () => controller.abort(),
  });
  await expect(aborted).rejects.toMatchObject({ code: "aborted" });
  expect(await readdir(join(folder.path, "cache", "weights"))).toEqual([]);
});

const a = floatTensor("a", [2, 32], waves(64));
const integers = { name: "i", dtype: "I8", shape: [2, 32], bytes: new Uint8Array(64) } as const;
const doubles = { name: "d", dtype: "F64", shape: [2, 32], bytes: new Uint8Array(512) } as const;
const infinite = floatTensor("n", [1, 32], [Infinity, ...waves(31)]);
const large = floatTensor("large", [1, 2], [1, 65520]);
const refused: readonly [request: Omit<WeightRequest, "name">, message: string][] = [
  [{ sources: ["b"], shape: [2, 32], format: int4 }, "The checkpoint has no tensor b, which config.json requires."],
  [{ sources: ["a"], shape: [32, 2], format: int4 }, "Tensor a has shape [2, 32]; config.json implies [32, 2]."],
  [{ sources: ["a"], shape: [64], format: float32 }, "Tensor a has shape [2, 32]; config.json implies [64]."],
  [{ sources: ["a", "a"], shape: [5, 32], format: int4 }, "Tensors a, a have 4 rows together; config.json implies 5."],
  [
    { sources: ["a", "large"], shape: [3, 32], format: int4 },
    "Tensor large has shape [1, 2]; config.json implies [..., 32].",
  ],
  [{ sources: ["i"], shape: [2, 32], format: float32 }, "Tensor i is stored as int8"],
  [{ sources: ["d"], shape: [2, 32], format: float32 }, "Tensor d is stored as float64"],
  [{ sources: ["n"], shape: [1, 32], format: int4 }, "Tensor n has a value that is not finite"],
  [{ sources: ["n"], shape: [1, 32], format: perChannel }, "Tensor n has a value that is not finite"],
  [{ sources: ["large"], shape: [1, 2], format: float16 }, "Tensor large has a value beyond 65504"],
];

test.for(refused)("a request the checkpoint cannot meet names the tensor: $1", async ([request, message]) => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [a, integers, doubles, infinite, large]);
  const error = await prepareIn(folder.path, [{ name: "w", ...request }]).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "invalid_checkpoint", message: expect.stringContaining(message) });
});

test("a cache folder that is not writable is a configuration error without its path", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, {}, [a]);
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: join(folder.path, "cache") });
  await writeFile(join(folder.path, "occupied"), "");
  const options = { cacheFolder: join(folder.path, "occupied"), numThreads: 1 };
  const error = await prepareWeights(checkpoint, [requestFor(a, int4)], options).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "invalid_configuration" });
  expect((error as Error).message).not.toContain(folder.path);
});

test("the rows of a pair are stored by turns, also where one matrix takes several tasks", async () => {
  await using folder = await createTemporaryFolder();
  const shape = [1500, 1024] as const;
  const [first, second, small] = [
    floatTensor("first", shape, waves(shape[0] * shape[1])),
    floatTensor(
      "second",
      shape,
      waves(shape[0] * shape[1]).map((value) => -value),
    ),
    floatTensor("small", [1, 1024], waves(1024)),
  ];
  await writeCheckpoint(folder.path, {}, [first, second, small]);
  const request: WeightRequest = {
    name: "both",
    sources: ["first", "second", "small", "small"],
    shape: [3002, 1024],
    format: float32,
    alternatesPairs: true,
  };
  const { weight } = (await prepareIn(folder.path, [request])).get("both")!;
  const values = new Float32Array(await bytesOf(weight));
  const row = (index: number): Float32Array => values.subarray(index * 1024, (index + 1) * 1024);
  const expected = (index: number): Float32Array =>
    waves(shape[0] * shape[1]).subarray(index * 1024, (index + 1) * 1024);
  for (const index of [0, 1, 1023, 1024, 1025, 1499]) {
    expect(row(2 * index)).toEqual(expected(index));
    expect(row(2 * index + 1)).toEqual(expected(index).map((value) => -value));
  }
  expect(row(3000)).toEqual(row(0));
  expect(row(3001)).toEqual(row(0));
});

test("rows of a matrix are taken in the order of the request, a single one in place", async () => {
  await using folder = await createTemporaryFolder();
  const matrix = floatTensor("matrix", [5, 32], waves(160));
  await writeCheckpoint(folder.path, {}, [matrix]);
  const request = { sources: ["matrix"], format: float32 } as const;
  const prepared = await prepareIn(folder.path, [
    { ...request, name: "pair", shape: [2, 32], rows: [3, 1] },
    { ...request, name: "single", shape: [1, 32], rows: [4] },
  ]);
  const valuesOf = async (name: string) => new Float32Array(await bytesOf(prepared.get(name)!.weight));
  expect(await valuesOf("pair")).toEqual(Float32Array.of(...waves(160).slice(96, 128), ...waves(160).slice(32, 64)));
  expect(await valuesOf("single")).toEqual(waves(160).slice(128));
  expect(prepared.get("single")!.weight.file).toBe(join(folder.path, "model.safetensors"));
});
