/** Kernel times out of tables as Nsight Compute writes them. */
import { expect, test } from "vitest";

import { kernelsOfSteps, profiledSteps } from "./profile-report.ts";

/** Of `ncu --csv --page raw`: lines of its own, names, units, and a row for each kernel. */
function table(...kernels: readonly (readonly [name: string, nanoseconds: string])[]): string {
  const rows = kernels.map(([name, nanoseconds], index) => [`${index}`, "77", name.replaceAll('"', '""'), nanoseconds]);
  const lines = [["ID", "Process ID", "Kernel Name", "gpu__time_duration.sum"], ["", "", "", "ns"], ...rows];
  return `==PROF== Connected to process 77\n${lines.map((row) => row.map((field) => `"${field}"`).join(",")).join("\n")}\n`;
}

const marker = [
  "void onnxruntime::cuda::_UnaryElementWise<float, float, onnxruntime::cuda::OP_Sin<float>, 256, 4>(T1)",
  "1",
] as const;

test("kernels between two markers belong to a step, the longest first", () => {
  const csv = table(
    ["before the first step()", "9000"],
    marker,
    ["nvjet_tst_64x8", "1,500"],
    ["void onnxruntime::cuda::RadixTopK<float, 256, 2>(const float *, (anonymous namespace)::Pair<int>)", "20000"],
    ["nvjet_tst_64x8", "2500"],
    marker,
    ["between two steps()", "9000"],
    marker,
    ['a "quoted" kernel(int)', "7000"],
    marker,
  );
  expect(kernelsOfSteps(csv)).toEqual([
    [
      { kernel: "RadixTopK<float, 256, 2>", count: 1, microseconds: 20 },
      { kernel: "nvjet_tst_64x8", count: 2, microseconds: 4 },
    ],
    [{ kernel: 'a "quoted" kernel', count: 1, microseconds: 7 }],
  ]);
});

test("a step without kernels is an empty list, and a file without a table is rejected", () => {
  expect(kernelsOfSteps(table(marker, marker))).toEqual([[]]);
  expect(() => kernelsOfSteps("==ERROR== The application returned an error.\n")).toThrow("no columns Kernel Name");
});

test("steps on a card decode up to 128 sequences and compute one chunk", () => {
  expect(profiledSteps(false).map(({ name, numSequences, numTokens }) => [name, numSequences, numTokens])).toEqual([
    ["decode of 1", 1, 1],
    ["decode of 32", 32, 1],
    ["decode of 128", 128, 1],
    ["a prompt chunk", 1, 1024],
  ]);
});
