/** Texts of ONNX Runtime 1.30.0 and of CUDA 13; those of the start were recorded on machines without a GPU. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { GraphBuilder, standardDomain } from "../../../engine/graph/graph-builder.ts";
import { explainCudaStart, isDeviceLost, isOutOfMemory } from "../../../engine/runtime/device-errors.ts";
import { requireCudnn } from "../../../engine/runtime/execution-provider.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const provider = "/app/node_modules/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime_providers_cuda.so";
const loadingFailed =
  "/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:1988 onnxruntime::Provider& " +
  `onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library ${provider} with error: `;
const optionFailed =
  "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_execution_provider_info.cc:62 static " +
  "onnxruntime::CUDAExecutionProviderInfo onnxruntime::CUDAExecutionProviderInfo::FromProviderOptions(const " +
  "onnxruntime::ProviderOptions&) [ONNXRuntimeError] : 1 : FAIL : provider_options_utils.h:187 Parse Failed to parse " +
  'provider option "device_id": ';
const runFailed = (failure: string): string =>
  `Non-zero status code returned while running PagedAttention node. Name:'layers.3.attention' Status Message: ${failure} ` +
  "; GPU=0 ; hostname=worker-1 ; file=/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc ; line=129 ; " +
  "expr=cudaStreamSynchronize(static_cast<cudaStream_t>(stream_)); ";

const noFile = "cannot open shared object file: No such file or directory";

describe("a CUDA provider that does not start", () => {
  test.for<[string, string, RegExp]>([
    ["no driver", `${loadingFailed}libcuda.so.1: ${noFile}`, /no NVIDIA driver.*Install driver 580 or newer/],
    [
      "no CUDA",
      `${loadingFailed}libcublasLt.so.13: ${noFile}`,
      /needs libcublasLt\.so\.13 of CUDA 13.*LD_LIBRARY_PATH/,
    ],
    [
      "an old driver",
      `${optionFailed}CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ; ` +
        "hostname=vm ; line=69 ; expr=cudaGetDeviceCount(&num_devices); ",
      /driver is too old for CUDA 13.*580 or newer/,
    ],
    [
      "a driver that lacks a call",
      `${optionFailed}CUDA failure 36: API call is not supported in the installed CUDA driver ; GPU=-1 ; hostname=vm ; `,
      /driver is too old for CUDA 13/,
    ],
    [
      "a driver without functions",
      `${loadingFailed}${provider}: undefined symbol: cuTensorMapEncodeTiled`,
      /driver is too old/,
    ],
    [
      "no card",
      `${optionFailed}CUDA failure 100: no CUDA-capable device is detected ; GPU=-1 ; hostname=vm ; line=69 ; `,
      /driver finds no GPU/,
    ],
    ["another card", `${optionFailed}Invalid device ordinal.`, /There is no CUDA device 3/],
    [
      "another version",
      `${loadingFailed}${provider}: undefined symbol: Provider_GetHost`,
      /of another version.*==1\.30\.0/,
    ],
    ["half a library", `${loadingFailed}${provider}: file too short`, /damaged or of another version/],
  ])("%s: says what to install", ([, text, expected]) => {
    const cause = new EngineError("runtime_failed", text);
    const explained = explainCudaStart(cause, 3);
    expect(explained).toMatchObject({ code: "invalid_configuration", message: expect.stringMatching(expected) });
    expect(explained.cause).toBe(cause);
    expect(explained.message).toContain(text);
  });

  test.for([
    "Unknown provider option: no_such_option",
    // The device is there, and its start is under way.
    `${optionFailed}CUDA failure 802: system not yet initialized ; GPU=-1 ; hostname=vm ; line=69 ; `,
  ])("does not change other failures: %s", (text) => {
    const cause = new EngineError("runtime_failed", text);
    expect(explainCudaStart(cause, 0)).toBe(cause);
  });

  test("a vision encoder without cuDNN is refused with a remedy", () => {
    expect(() => requireCudnn("libcudnn_that_is_not_there.so.9")).toThrow(
      expect.objectContaining({
        code: "invalid_configuration",
        message: expect.stringMatching(/cuDNN 9 .* libcudnn_that_is_not_there\.so\.9 .* or encode images on the CPU/),
      }),
    );
    expect(() => requireCudnn("libc.so.6")).not.toThrow();
  });
});

const lost = [
  runFailed("CUDA failure 700: an illegal memory access was encountered"),
  runFailed("CUDA failure 719: unspecified launch failure"),
  runFailed("CUDA failure 999: unknown error"),
  runFailed("CUDA failure 214: uncorrectable ECC error encountered"),
  "CUDA error cudaErrorLaunchFailure: unspecified launch failure",
  "[E:onnxruntime] WebGPU device lost (1): Device was lost.",
  "GPU is lost. NVRM: Xid 79, GPU has fallen off the bus.",
];
const exhausted = [
  runFailed("CUDA failure 2: out of memory"),
  "Failed to allocate memory for requested buffer of size 17179869184",
  "Available memory of 1048576 is smaller than requested bytes of 4194304",
  "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; hostname=worker-1",
  "CUDNN failure 4002: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
  "std::bad_alloc",
];
const kept = [
  ...exhausted,
  runFailed("CUDA failure 1: invalid argument"),
  runFailed("CUDA failure 209: no kernel image"),
];

test.for(lost)("no run after this one can succeed: %s", (text) => {
  expect(isDeviceLost(text)).toBe(true);
});

test.for(kept)("a run after this one can succeed: %s", (text) => {
  expect(isDeviceLost(text)).toBe(false);
  expect(isOutOfMemory(text)).toBe(exhausted.includes(text));
});

/** `x` [1] is the size of `y`, in a graph whose only node is named by `name`, which ONNX Runtime quotes in its errors. */
async function loadExpand(folder: string, name: string): Promise<Session> {
  const graph = new GraphBuilder("expand");
  const size = graph.input("x", "int64", [1]);
  const one = graph.constant("one", "float32", [1], [1]);
  const [y] = graph.addNode({
    name,
    operator: "Expand",
    domain: standardDomain,
    inputs: [one, size],
    outputs: [{ name: "y", elementType: "float32", shape: ["size"] }],
  });
  graph.output(y);
  const path = join(folder, "expand.onnx");
  await writeFile(path, graph.encode());
  return Session.load(path, { device: "cpu", deviceId: 0, numThreads: 1 });
}

function expand(session: Session, size: bigint): Float32Array {
  using binding = session.createBinding();
  using x = Tensor.fromTypedArray("int64", BigInt64Array.of(size), [1]);
  binding.bindInput("x", x);
  binding.bindOutputToDevice("y");
  binding.run();
  using y = binding.output("y");
  return y.copyToHost() as Float32Array;
}

test("a run without memory is `out_of_memory`, and the session still works", async () => {
  await using folder = await createTemporaryFolder();
  using session = await loadExpand(folder.path, "expand");
  expect(() => expand(session, 2n ** 50n)).toThrow(
    expect.objectContaining({ code: "out_of_memory", message: expect.stringMatching(/Failed to allocate memory/) }),
  );
  expect(expand(session, 3n)).toEqual(Float32Array.of(1, 1, 1));
});

test("a run whose error names a lost device is `device_lost`", async () => {
  await using folder = await createTemporaryFolder();
  using session = await loadExpand(folder.path, "CUDA failure 700: an illegal memory access was encountered");
  expect(() => expand(session, -5n)).toThrow(expect.objectContaining({ code: "device_lost" }));
});
