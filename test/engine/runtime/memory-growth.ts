/**
 * Run by memory.test.ts in a separate process with --expose-gc: creates and releases thousands of handles, and prints
 * by how many bytes resident memory grew after the warm-up, as JSON.
 */
import { EngineError } from "../../../engine/contract/errors.ts";
import { Session } from "../../../engine/runtime/session.ts";
import type { SessionOptions } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";

const path = process.argv[2]!;
const options: SessionOptions = { device: "cpu", deviceId: 0, numThreads: 1 };

using session = Session.load(path, options);

// 64 KiB each: if one in ten were kept, 1,000 rounds would show it.
const numRows = 128;
const numColumns = 128;

const rounds = {
  tensorsAndBindings: (): void => {
    using binding = session.createBinding();
    using tensor = session.allocateTensor("float32", [numRows, numColumns]);
    using sum = session.allocateTensor("float32", [numRows, numColumns]);
    binding.bindInput("left", tensor);
    binding.bindInput("right", tensor);
    binding.bindOutput("sum", sum);
    binding.run();
  },
  fetchedOutputs: (): void => {
    using binding = session.createBinding();
    using tensor = session.allocateTensor("float32", [numRows, numColumns]);
    binding.bindInput("left", tensor);
    binding.bindInput("right", tensor);
    binding.bindOutputToDevice("sum");
    binding.run();
    binding.output("sum")[Symbol.dispose]();
  },
  errors: (): void => {
    using binding = session.createBinding();
    using tensor = session.allocateTensor("float32", [numRows, numColumns]);
    using vector = Tensor.fromTypedArray("float32", new Float32Array(3), [3, 1]);
    binding.bindInput("left", tensor);
    binding.bindInput("right", vector);
    binding.bindOutputToDevice("sum");
    expectFailure(() => binding.run());
    expectFailure(() => Session.load(`${path}.missing`, options));
  },
  sessions: (): void => {
    using another = Session.load(path, options);
    another.createBinding();
  },
} as const;

function expectFailure(call: () => void): void {
  try {
    call();
  } catch (error) {
    if (error instanceof EngineError && error.code === "runtime_failed") return;
    throw error;
  }
  throw new Error("The call should have failed.");
}

function residentBytes(): number {
  // Two passes: the first finds the arrays, the second frees the memory that they held.
  globalThis.gc?.();
  globalThis.gc?.();
  return process.memoryUsage.rss();
}

function growth(round: () => void, count: number): number {
  const repeat = (times: number): void => {
    for (let index = 0; index < times; index++) {
      round();
      if (index % 100 === 0) globalThis.gc?.();
    }
  };
  repeat(count / 5);
  const before = residentBytes();
  repeat(count);
  return residentBytes() - before;
}

process.stdout.write(
  JSON.stringify({
    tensorsAndBindings: growth(rounds.tensorsAndBindings, 10_000),
    fetchedOutputs: growth(rounds.fetchedOutputs, 10_000),
    errors: growth(rounds.errors, 2_000),
    sessions: growth(rounds.sessions, 500),
  }),
);
