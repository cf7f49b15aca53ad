/**
 * Run by webgpu.test.ts in a separate process, because a process selects Vulkan's driver when it first uses it: the
 * same attention on `cpu` and on `webgpu`, results as JSON.
 */
import { Session } from "../../../engine/runtime/session.ts";
import { decode, decodeInOneRun } from "./attention-steps.ts";
import type { AttentionResult } from "./attention-steps.ts";

const [attentionPath, sumPath] = process.argv.slice(2);

export interface DeviceResults {
  readonly outputs: readonly number[];
  readonly keys: readonly number[];
}

export interface WebGpuReport {
  readonly cpu: DeviceResults;
  readonly webgpu: DeviceResults;
  /** Outputs of a prompt of as many tokens in one run. */
  readonly prompts: readonly {
    readonly numTokens: number;
    readonly cpu: readonly number[];
    readonly webgpu: readonly number[];
  }[];
  /** Four times [1, 2, 3]: doubled on the device, the result bound as input of the next run. */
  readonly doubledTwice: readonly number[];
  /** The same numbers, copied by another thread. */
  readonly copiedBeside: readonly number[];
  /** Shape and numbers of an output that stays on the device. */
  readonly allocated: {
    readonly isOnDevice: boolean;
    readonly shape: readonly number[];
    readonly data: readonly number[];
  };
  /** Message of the error that a device tensor gives after its session is gone. */
  readonly afterDisposal: string;
}

function toPlain({ outputs, keys }: AttentionResult): DeviceResults {
  return { outputs: [...outputs], keys: [...keys] };
}

function attentionOn(device: "cpu" | "webgpu"): DeviceResults {
  using session = Session.load(attentionPath!, { device, deviceId: 0, numThreads: 1 });
  return toPlain(decode(session));
}

function promptOn(device: "cpu" | "webgpu", numTokens: number): number[] {
  using session = Session.load(attentionPath!, { device, deviceId: 0, numThreads: 1 });
  return [...decodeInOneRun(session, numTokens).outputs];
}

async function sums(): Promise<Omit<WebGpuReport, "cpu" | "webgpu" | "prompts">> {
  using session = Session.load(sumPath!, { device: "webgpu", deviceId: 0, numThreads: 1 });
  using binding = session.createBinding();
  using first = session.allocateTensor("float32", [1, 3]);
  using second = session.allocateTensor("float32", [1, 3]);
  first.copyFrom(Float32Array.of(1, 2, 3));
  for (const [source, target] of [
    [first, second],
    [second, first],
  ]) {
    binding.bindInput("left", source!);
    binding.bindInput("right", source!);
    binding.bindOutput("sum", target!);
    binding.run();
  }
  binding.bindOutputToDevice("sum");
  binding.run();
  using output = binding.output("sum");
  const allocated = {
    isOnDevice: output.isOnDevice,
    shape: output.shape,
    data: [...(output.copyToHost() as Float32Array)],
  };
  const doubledTwice = [...first.copyToHost()];
  const beside = new Float32Array(new SharedArrayBuffer(12));
  await first.copyIntoBeside(beside);
  session[Symbol.dispose]();
  return { doubledTwice, copiedBeside: [...beside], allocated, afterDisposal: messageOf(() => first.copyToHost()) };
}

function messageOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    return (error as Error).message;
  }
  return "";
}

const report: WebGpuReport = {
  cpu: attentionOn("cpu"),
  webgpu: attentionOn("webgpu"),
  prompts: [31, 32].map((numTokens) => ({
    numTokens,
    cpu: promptOn("cpu", numTokens),
    webgpu: promptOn("webgpu", numTokens),
  })),
  ...(await sums()),
};
process.stdout.write(JSON.stringify(report));
