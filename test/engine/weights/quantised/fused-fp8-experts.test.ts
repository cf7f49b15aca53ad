/** FP8 experts in one tensor of a layer, with their scales in another, beside the same experts one by one. */
import { open, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { openCheckpoint, type Checkpoint } from "../../../../engine/weights/checkpoint.ts";
import { prepareWeights } from "../../../../engine/weights/prepare-weights.ts";
import { readSafetensorsHeader } from "../../../../engine/weights/safetensors.ts";
import { writeHubCheckpoint } from "../../../support/checkpoints/hub-checkpoints.ts";
import {
  floatTensor,
  writeCheckpoint,
  type SafetensorsDtype,
  type SafetensorsTensor,
} from "../../../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

/** Float32 of each expert's matrices, by name. */
async function expertsOf(checkpoint: Checkpoint, cacheFolder: string): Promise<Map<string, Float32Array>> {
  const names = [...checkpoint.tensors.keys()].filter((name) => /\.experts\.\d+\.\w+\.weight$/.test(name)).sort();
  const format = { kind: "plain", elementType: "float32" } as const;
  const requests = names.map((name) => ({
    name,
    sources: [name],
    shape: checkpoint.tensors.get(name)!.shape,
    format,
  }));
  const prepared = await prepareWeights(checkpoint, requests, { cacheFolder, numThreads: 1 });
  const values = new Map<string, Float32Array>();
  for (const name of names) {
    const { file, byteOffset, byteLength } = prepared.get(name)!.weight;
    const bytes = new Uint8Array(byteLength);
    await using handle = await open(file);
    await handle.read(bytes, 0, byteLength, byteOffset);
    values.set(name, new Float32Array(bytes.buffer));
  }
  return values;
}

interface Matrix {
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly [number, number];
  readonly bytes: Uint8Array;
}

function transposed({ dtype, shape: [rows, columns], bytes }: Matrix): Matrix {
  const size = bytes.length / (rows * columns);
  const turned = new Uint8Array(bytes.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const at = (row * columns + column) * size;
      turned.set(bytes.subarray(at, at + size), (column * rows + row) * size);
    }
  }
  return { dtype, shape: [columns, rows], bytes: turned };
}

function stacked(name: string, matrices: readonly Matrix[]): SafetensorsTensor {
  const { dtype, shape } = matrices[0]!;
  const bytes = new Uint8Array(Buffer.concat(matrices.map((matrix) => matrix.bytes)));
  return { name, dtype, shape: [matrices.length, ...shape], bytes };
}

const dtypes = { float8e4m3: "F8_E4M3", bfloat16: "BF16" } as const;

test.for(["outputs before inputs", "inputs before outputs"] as const)(
  "experts of a checkpoint in one tensor with %s dequantise to the bits of single matrices",
  async (order) => {
    await using folder = await createTemporaryFolder();
    await using fused = await createTemporaryFolder();
    await writeHubCheckpoint("qwen3.5-moe-fp8", "v4", folder.path);
    const config: unknown = JSON.parse(await readFile(join(folder.path, "config.json"), "utf8"));
    const file = join(folder.path, "model.safetensors");
    const tensors = (await readSafetensorsHeader(file))!;
    const content = await readFile(file);
    const matrixOf = (name: string): Matrix => {
      const { elementType, shape, byteOffset, byteLength } = tensors.get(name)!;
      const dtype = dtypes[elementType as keyof typeof dtypes];
      const bytes = content.subarray(byteOffset, byteOffset + byteLength);
      return { dtype, shape: shape as [number, number], bytes };
    };
    const layers = [...tensors.keys()].flatMap((name) => /^(.*\.experts)\.0\.down_proj\.weight$/.exec(name)?.[1] ?? []);
    expect(layers.length).toBeGreaterThan(1);
    const made = layers.flatMap((layer) =>
      ["", "_scale_inv"].flatMap((part) => {
        const experts: { gateUp: Matrix; down: Matrix }[] = [];
        for (let index = 0; tensors.has(`${layer}.${index}.down_proj.weight`); index++) {
          const [gate, up, down] = ["gate_proj", "up_proj", "down_proj"].map((projection) =>
            matrixOf(`${layer}.${index}.${projection}.weight${part}`),
          ) as [Matrix, Matrix, Matrix];
          const shape = [gate.shape[0] + up.shape[0], gate.shape[1]] as const;
          const gateUp = { dtype: gate.dtype, shape, bytes: Buffer.concat([gate.bytes, up.bytes]) };
          const turn = order === "inputs before outputs" ? transposed : (matrix: Matrix): Matrix => matrix;
          experts.push({ gateUp: turn(gateUp), down: turn(down) });
        }
        return [
          stacked(
            `${layer}.gate_up_proj${part}`,
            experts.map(({ gateUp }) => gateUp),
          ),
          stacked(
            `${layer}.down_proj${part}`,
            experts.map(({ down }) => down),
          ),
        ];
      }),
    );
    await writeCheckpoint(fused.path, config, made);
    const expected = await expertsOf(await openCheckpoint(folder.path, { cacheFolder: folder.path }), folder.path);
    const checkpoint = await openCheckpoint(fused.path, { cacheFolder: fused.path });
    expect(await expertsOf(checkpoint, fused.path)).toEqual(expected);
  },
);

const [numExperts, width, hidden] = [3, 12, 5];
/** One, and one and a half. */
const codes = [0x38, 0x3c];
const codeAt = (index: number): number => codes[(index * index + index) % 7 < 3 ? 0 : 1]!;
const valueOf = (code: number): number => (code === 0x38 ? 1 : 1.5);

function codesOf(name: string, shape: readonly [number, number, number]): SafetensorsTensor {
  const bytes = Uint8Array.from({ length: shape[0] * shape[1] * shape[2] }, (_, index) => codeAt(index));
  return { name, dtype: "F8_E4M3", shape, bytes };
}

/** Numbers from 1 on. */
function scalesOf(name: string, shape: readonly number[]): SafetensorsTensor {
  const length = shape.reduce((product, size) => product * size, 1);
  return floatTensor(
    name,
    shape,
    Array.from({ length }, (_, index) => index + 1),
  );
}

const configOf = (blockSize: readonly number[] | null) => ({
  quantization_config: { quant_method: "fp8", weight_block_size: blockSize },
});

const layer = "mlp.experts";

function fusedTensors(gateUpScales: readonly number[], downScales: readonly number[]): SafetensorsTensor[] {
  return [
    codesOf(`${layer}.gate_up_proj`, [numExperts, 2 * width, hidden]),
    codesOf(`${layer}.down_proj`, [numExperts, hidden, width]),
    scalesOf(`${layer}.gate_up_proj_scale_inv`, gateUpScales),
    scalesOf(`${layer}.down_proj_scale_inv`, downScales),
  ];
}

/** The scale of an element of gate and up projection as one matrix. */
type ScaleAt = (expert: number, row: number, column: number) => number;

test.for<[string, readonly number[] | null, readonly number[], readonly number[], ScaleAt]>([
  ["one for all", null, [1], [1], () => 1],
  ["one of each expert", null, [3], [3], (expert) => expert + 1],
  ["one of each expert as a matrix", null, [3, 1, 1], [3, 1, 1], (expert) => expert + 1],
  ["one of each projection", null, [3, 2, 1], [3, 1, 1], (expert, row) => 2 * expert + (row < width ? 1 : 2)],
  ["one of each output", null, [3, 24, 1], [3, 5, 1], (expert, row) => 24 * expert + row + 1],
  [
    "of blocks that lie in both projections",
    [8, 3],
    [3, 3, 2],
    [3, 1, 4],
    (expert, row, column) => 6 * expert + 2 * Math.floor(row / 8) + Math.floor(column / 3) + 1,
  ],
  [
    "of blocks larger than a projection",
    [16, 8],
    [3, 2, 1],
    [3, 1, 2],
    (expert, row) => 2 * expert + Math.floor(row / 16) + 1,
  ],
])("scales may be %s", async ([, blockSize, gateUpScales, downScales, scaleAt]) => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, configOf(blockSize), fusedTensors(gateUpScales, downScales));
  const checkpoint = await openCheckpoint(folder.path, { cacheFolder: folder.path });
  const values = await expertsOf(checkpoint, folder.path);
  expect(values.size).toBe(3 * numExperts);
  for (let expert = 0; expert < numExperts; expert++) {
    for (const [half, projection] of ["gate_proj", "up_proj"].entries()) {
      const expected = Array.from({ length: width * hidden }, (_, index) => {
        const row = half * width + Math.floor(index / hidden);
        const column = index % hidden;
        const code = codeAt((expert * 2 * width + row) * hidden + column);
        return valueOf(code) * scaleAt(expert, row, column);
      });
      expect([...values.get(`${layer}.${expert}.${projection}.weight`)!]).toEqual(expected);
    }
  }
});

test.for<[readonly number[], readonly number[], RegExp]>([
  [[3, 2, 2], [3, 1, 4], /gate_up_proj_scale_inv has shape \[2, 2\]; expected \[3, 2\] with 24 outputs, 5 inputs/],
  [[3, 3, 2], [3, 2, 4], /down_proj_scale_inv has shape \[2, 4\]; expected \[1, 4\] with 5 outputs, 12 inputs/],
  [[2, 3, 2], [3, 1, 4], /gate_up_proj_scale_inv has shape \[2, 3, 2\]; expected scales of 3 experts/],
])("scales %j and %j are rejected by name", async ([gateUpScales, downScales, message]) => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, configOf([8, 3]), fusedTensors(gateUpScales, downScales));
  await expect(openCheckpoint(folder.path, { cacheFolder: folder.path })).rejects.toThrow(
    expect.objectContaining({ code: "invalid_checkpoint", message: expect.stringMatching(message) as unknown }),
  );
});

test("scales without codes, and scales that the configuration does not mention, are rejected by name", async () => {
  const [, , scales] = fusedTensors([3], [3]);
  for (const [config, message] of [
    [configOf(null), /has mlp.experts.gate_up_proj_scale_inv, but no tensor mlp.experts.0.gate_proj.weight/],
    [{}, /gate_up_proj_scale_inv is of a checkpoint quantised by fp8, but config.json has no quantization_config/],
  ] as const) {
    await using folder = await createTemporaryFolder();
    await writeCheckpoint(folder.path, config, [scales!]);
    await expect(openCheckpoint(folder.path, { cacheFolder: folder.path })).rejects.toThrow(message);
  }
});
