import { cp, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { createEngine, createSamplingParams } from "../../engine/index.ts";
import { toFloat32 } from "../../engine/weights/float-conversion.ts";
import { readSafetensorsHeader } from "../../engine/weights/safetensors.ts";
import { halveCheckpoint } from "../../package/half-checkpoint.ts";
import { floatTensor, writeCheckpoint } from "../support/checkpoints/safetensors-writer.ts";
import type { SafetensorsTensor } from "../support/checkpoints/safetensors-writer.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const shipped = fileURLToPath(new URL("../../models/fovea-shapes/", import.meta.url));
/** Of 879; all of them agree too, but take ten times as long. */
const NUM_QUESTIONS = 80;

interface HeldOutQuestion {
  readonly image: string;
  readonly question: string;
}

test("rounds weights to float16, in the same order", async () => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, config, [float32("b", [1.5, 1 / 3, -65504]), float32("a", [2 ** -24])]);
  await halveCheckpoint(folder.path);
  const file = join(folder.path, "model.safetensors");
  const tensors = [...(await readSafetensorsHeader(file))!.values()];
  expect(tensors.map(({ name, elementType, shape }) => [name, elementType, shape])).toEqual([
    ["b", "float16", [3]],
    ["a", "float16", [1]],
  ]);
  const bytes = await readFile(file);
  expect(tensors[0]!.byteOffset % 8).toBe(0);
  const values = tensors.flatMap(({ byteOffset, byteLength }) =>
    Array.from(toFloat32(new Uint8Array(bytes.subarray(byteOffset, byteOffset + byteLength)), "float16")),
  );
  expect(values).toEqual([1.5, 0.333251953125, -65504, 2 ** -24]);
  expect(JSON.parse(await readFile(join(folder.path, "config.json"), "utf8"))).toEqual({
    dtype: "float16",
    model_type: "llava",
  });
});

test.for([
  ["a value beyond float16", float32("head", [1, 65520]), /head in .* has a value beyond 65504/],
  ["a NaN", float32("head", [NaN]), /head in .* has a value beyond 65504/],
  ["another dtype", { ...float32("head", [1, 2]), dtype: "I32" as const }, /head in .* is int32, expected float32/],
] as const)("rejects %s", async ([, tensor, message]) => {
  await using folder = await createTemporaryFolder();
  await writeCheckpoint(folder.path, config, [tensor]);
  await expect(halveCheckpoint(folder.path)).rejects.toThrow(message);
});

test("the shipped checkpoint gives the same answers", async () => {
  await using folder = await createTemporaryFolder();
  const half = join(folder.path, "half");
  await cp(shipped, half, { recursive: true, filter: (path) => !path.includes("heldout") });
  await halveCheckpoint(half);
  expect(await answersOf(half)).toEqual(await answersOf(shipped));
});

const config = { dtype: "float32", model_type: "llava" };

function float32(name: string, values: readonly number[]): SafetensorsTensor {
  return floatTensor(name, [values.length], values);
}

async function answersOf(model: string): Promise<string[]> {
  const heldOut = join(shipped, "heldout");
  const lines = (await readFile(join(heldOut, "questions.jsonl"), "utf8")).split("\n").slice(0, NUM_QUESTIONS);
  const engine = createEngine({ model });
  await engine.ready;
  const answers = await Promise.all(
    lines.map(async (line, index) => {
      const { image, question } = JSON.parse(line) as HeldOutQuestion;
      const reference = `data:;base64,${await readFile(join(heldOut, image), "base64")}`;
      const content = [{ type: "image", reference } as const, { type: "text", text: question } as const];
      const prompt = { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true } as const;
      const samplingParams = createSamplingParams({ temperature: 0, maxTokens: 100 });
      let answer = "";
      for await (const { text } of engine.generate({ requestId: `${index}`, prompt, samplingParams })) answer += text;
      return answer;
    }),
  );
  await engine.close();
  return answers;
}
