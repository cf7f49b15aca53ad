/** The experiments themselves: in small on the CPU, so that they are right before a GPU is paid for. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { EngineError } from "../../engine/contract/errors.ts";
import { testDevices } from "../support/devices/test-devices.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { collectReport } from "./collect-report.ts";
import { loadGraph } from "./experiment.ts";
import { experiments } from "./experiments.ts";
import { compareTokens } from "./near-ties.ts";
import { decode, encode, relativeError } from "./numbers.ts";
import { attendInLoops, buildAttention, randomBatch, runAttention } from "./paged-attention.ts";
import type { ReportFile } from "./report.ts";
import { runExperiment } from "./run-experiment.ts";
import { supervisePart } from "./supervise-part.ts";

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

/** On a GPU, the others take minutes each: `run.sh` runs them. */
const quick = new Set(["1", "2", "6", "9"]);

describe.for(testDevices)("on %s", (device) => {
  const run = experiments.filter(({ id }) => device === "cpu" || quick.has(id));

  test.for(run)("part $id passes: $title", async (experiment) => {
    const lines: string[] = [];
    const output = join(folder.path, "reports");
    const log = (line: string): void => void lines.push(line);
    const outcome = await runExperiment(experiment, { device, folder: join(folder.path, "work"), output, log });
    expect(lines.filter((line) => line.includes("FAIL"))).toEqual([]);
    expect(outcome).toBe("passed");
    const report = JSON.parse(await readFile(join(output, `${experiment.id}-${device}.json`), "utf8"));
    expect(report).toMatchObject({ experiment: experiment.id, device, status: "passed" });
    expect(report.machine.processor).toEqual(expect.any(String));
    expect(report.checks.length + report.figures.length).toBeGreaterThan(1);
  });
});

test("a case that throws fails its check, and the next case runs", async () => {
  const output = join(folder.path, "failing");
  const experiment = {
    id: "failing",
    title: "Two cases",
    run: async ({ report }: Parameters<(typeof experiments)[number]["run"]>[0]): Promise<void> => {
      await report.attempt("first", () => {
        throw new EngineError("runtime_failed", "out of memory");
      });
      await report.attempt("second", () => report.check("second", true));
      await report.attempt("third", () => {
        throw new EngineError("device_lost", "CUDA failure 700");
      });
      report.check("never reached", true);
    },
  };
  const options = { device: "cpu", folder: folder.path, output, log: () => {} } as const;
  expect(await runExperiment(experiment, options)).toBe("lost");
  const report = JSON.parse(await readFile(join(output, "failing-cpu.json"), "utf8"));
  expect(report.status).toBe("failed");
  expect(report.checks.map(({ name, passed }: { name: string; passed: boolean }) => [name, passed])).toEqual([
    ["first", false],
    ["second", true],
    ["third", false],
  ]);
});

test("another process continues after a case that crashes, loses the device or hangs", async () => {
  const output = join(folder.path, "crashing");
  const path = join(output, "crashing-cpu.json");
  const script = fileURLToPath(new URL("crashing-part.ts", import.meta.url));
  const endsAt = performance.now() + 600_000;
  const argumentsOf = (_: number, resumes: boolean) => [script, output, String(resumes)];
  expect(await supervisePart(path, endsAt, argumentsOf, { caseSeconds: 4, log: () => {} })).toBe("failed");
  const report = JSON.parse(await readFile(path, "utf8")) as ReportFile;
  expect(report.status).toBe("failed");
  expect(report.running).toBeNull();
  const failed = report.checks.filter((check) => !check.passed).map(({ name, detail }) => [name, detail]);
  expect(failed).toEqual([
    ["group: crashes", expect.stringContaining("the process ended in this case")],
    ["group: loses the device", expect.stringContaining("device_lost: CUDA failure 700")],
    ["hangs", expect.stringContaining("the case took too long")],
  ]);
  expect(report.checks.filter(({ passed }) => passed).map(({ name }) => name)).toEqual(["first", "second", "last"]);
  expect(report.figures).toEqual([{ name: "of the first case", value: 1, unit: "once" }]);
});

test("a part whose device does not start is not run", async () => {
  const output = join(folder.path, "unusable");
  const part = { id: "1", title: "A part", run: () => Promise.resolve() };
  const options = { device: "cuda", folder: folder.path, output, log: () => {} } as const;
  const outcome = await runExperiment(part, options);
  expect(outcome).toBe(testDevices.includes("cuda") ? "passed" : "unusable");
});

test("a wrong block, or a key in a wrong place, is beyond every tolerance", () => {
  const shape = {
    elementType: "float32",
    numHeads: 4,
    numKvHeads: 2,
    headDim: 64,
    blockSize: 16,
    localWindowSize: null,
  } as const;
  const context = { device: "cpu" as const, folder: folder.path, dtype: null, report: collectReport(folder.path) };
  using session = loadGraph(context, "wrong-block", buildAttention("cpu", shape));
  const batch = randomBatch(shape, [{ past: 40, length: 1 }], 5);
  const wrong = { ...batch, blockTable: batch.blockTable.with(0, batch.blockTable[1]!) };
  const { attended } = runAttention(session, shape, batch);
  expect(relativeError(attended, attendInLoops(shape, batch).attended)).toBeLessThan(1e-5);
  expect(relativeError(attended, attendInLoops(shape, wrong).attended)).toBeGreaterThan(0.03);
});

test("numbers survive their own type, and anything else has an infinite error", () => {
  const values = Float32Array.of(0, 1, -2.5, 0.0078125, 240);
  for (const type of ["float32", "float16", "bfloat16"] as const)
    expect(decode(type, encode(type, values))).toEqual(values);
  expect(relativeError(Float32Array.of(1, NaN), Float32Array.of(1, 2))).toBe(Infinity);
  expect(relativeError(Float32Array.of(1), Float32Array.of(1, 2))).toBe(Infinity);
});

test("a token that is about as likely is a near tie, and another one is not", () => {
  const golden = {
    name: "",
    messages: [],
    pictures: [],
    promptTokenIds: [],
    greedyTokenIds: [2, 1],
    logits: Float32Array.of(0, 9.9, 10, 0, 10, 3),
    pixelValues: null,
    imageFeatures: null,
  };
  expect(compareTokens([2, 1], golden, 3)).toEqual({ isEqual: true, numEqual: 2, gap: 0 });
  expect(compareTokens([1, 0], golden, 3).gap).toBeCloseTo(0.01);
  expect(compareTokens([2, 2], golden, 3).gap).toBeCloseTo(0.7);
  expect(compareTokens([2], golden, 3).gap).toBe(Infinity);
});
