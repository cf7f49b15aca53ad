import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";

import { requireCudaLibraries } from "../../../engine/runtime/execution-provider.ts";
import { Session } from "../../../engine/runtime/session.ts";
import type { SessionOptions } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { writeSumModel } from "./small-models.ts";

const options: SessionOptions = { device: "cpu", deviceId: 0, numThreads: 1 };

test("a session knows the names of its inputs and outputs", async () => {
  await using folder = await createTemporaryFolder();
  using session = Session.load(await writeSumModel(folder.path), options);
  expect(session.inputNames).toEqual(["left", "right"]);
  expect(session.outputNames).toEqual(["sum"]);
  expect(session.device).toBe("cpu");
});

test("every optimisation level, thread count and config entry gives the same sums", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  const variants: Partial<SessionOptions>[] = [
    { graphOptimizationLevel: "disabled" },
    { graphOptimizationLevel: "basic" },
    { graphOptimizationLevel: "extended" },
    { graphOptimizationLevel: "all" },
    { numThreads: null },
    { configEntries: { "session.intra_op.allow_spinning": "0" } },
  ];
  for (const variant of variants) {
    using session = Session.load(path, { ...options, ...variant });
    using binding = session.createBinding();
    using ones = Tensor.fromTypedArray("float32", Float32Array.of(1, 2, 3, 4, 5, 6), [2, 3]);
    using sum = session.allocateTensor("float32", [2, 3]);
    binding.bindInput("left", ones);
    binding.bindInput("right", ones);
    binding.bindOutput("sum", sum);
    binding.run();
    expect(sum.data).toEqual(Float32Array.of(2, 4, 6, 8, 10, 12));
  }
});

test("a missing model is an error with ONNX Runtime's message", () => {
  expect(() => Session.load("/nowhere/model.onnx", options)).toThrow(
    expect.objectContaining({ code: "runtime_failed", message: expect.stringMatching(/nowhere.*doesn't exist/) }),
  );
});

test.for([
  ["nothing", new Uint8Array(0)],
  ["text", new TextEncoder().encode("not a model at all")],
  ["zeros", new Uint8Array(1000)],
] as const)("a model file of %s is an error", async ([, contents]) => {
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "garbage.onnx");
  await writeFile(path, contents);
  expect(() => Session.load(path, options)).toThrow(expect.objectContaining({ code: "runtime_failed" }));
});

test("half a model file is an error", async () => {
  await using folder = await createTemporaryFolder();
  const model = await readFile(await writeSumModel(folder.path));
  const path = join(folder.path, "half.onnx");
  await writeFile(path, model.subarray(0, model.length / 2));
  expect(() => Session.load(path, options)).toThrow(expect.objectContaining({ code: "runtime_failed" }));
});

test("a config entry that ONNX Runtime rejects is an error", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  expect(() => Session.load(path, { ...options, configEntries: { "": "1" } })).toThrow(
    expect.objectContaining({ code: "runtime_failed" }),
  );
});

test("cuda without its provider library names the file and the wheel that has it", async () => {
  await using folder = await createTemporaryFolder();
  const refusal = (fileName: string): unknown =>
    expect.objectContaining({
      code: "invalid_configuration",
      message: expect.stringMatching(`needs ${fileName}.*onnxruntime-gpu==1\\.30\\.0.*CUDA 13`),
    });
  expect(() => requireCudaLibraries(folder.path)).toThrow(refusal("libonnxruntime_providers_cuda.so"));
  await writeFile(join(folder.path, "libonnxruntime_providers_cuda.so"), "");
  expect(() => requireCudaLibraries(folder.path)).toThrow(refusal("libonnxruntime_providers_shared.so"));
  await writeFile(join(folder.path, "libonnxruntime_providers_shared.so"), "");
  expect(() => requireCudaLibraries(folder.path)).not.toThrow();
  for (const needed of ["libcublas.so.12\0libcudart.so.12\0", "libcudart.so.14"]) {
    await writeFile(join(folder.path, "libonnxruntime_providers_cuda.so"), `\x7fELF${needed}`);
    const major = needed.slice(-3).replaceAll(/\D/g, "");
    expect(() => requireCudaLibraries(folder.path)).toThrow(
      expect.objectContaining({
        code: "invalid_configuration",
        message: expect.stringMatching(`built for CUDA ${major}, .* provider needs CUDA 13`),
      }),
    );
  }
});

test("webgpu rejects an adapter that it cannot select", async () => {
  await using folder = await createTemporaryFolder();
  const path = await writeSumModel(folder.path);
  expect(() => Session.load(path, { ...options, device: "webgpu", deviceId: 1 })).toThrow(
    expect.objectContaining({ code: "invalid_configuration", message: expect.stringContaining("not 1") }),
  );
});

test("a session and its objects can be disposed of twice, and using them afterwards is an error", async () => {
  await using folder = await createTemporaryFolder();
  const session = Session.load(await writeSumModel(folder.path), options);
  const binding = session.createBinding();
  const tensor = session.allocateTensor("float32", [1, 1]);
  session[Symbol.dispose]();
  session[Symbol.dispose]();
  binding[Symbol.dispose]();
  expect(() => binding.run()).toThrow("used after its disposal");
  expect(() => binding.bindInput("left", tensor)).toThrow("used after its disposal");
  expect(() => session.createBinding()).toThrow("used after its disposal");
  expect(() => session.allocateTensor("float32", [1])).toThrow("used after its disposal");
  tensor[Symbol.dispose]();
  tensor[Symbol.dispose]();
  expect(() => tensor.data).toThrow("used after its disposal");
});
