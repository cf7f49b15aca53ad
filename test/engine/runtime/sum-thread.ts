/** Entry of a worker thread: doubles the numbers of `workerData` in its own session. */
import { parentPort, workerData } from "node:worker_threads";

import { Session } from "../../../engine/runtime/session.ts";
import { Tensor } from "../../../engine/runtime/tensor.ts";

export interface SumThreadData {
  readonly path: string;
  readonly numbers: Float32Array;
  readonly numRuns: number;
  /** False ends the thread with its session loaded. */
  readonly isTidy: boolean;
}

const { path, numbers, numRuns, isTidy } = workerData as SumThreadData;

const session = Session.load(path, { device: "cpu", deviceId: 0, numThreads: 2 });
const binding = session.createBinding();
const tensor = Tensor.fromTypedArray("float32", numbers, [1, numbers.length]);
const sum = session.allocateTensor("float32", [1, numbers.length]);
binding.bindInput("left", tensor);
binding.bindInput("right", tensor);
binding.bindOutput("sum", sum);
for (let run = 0; run < numRuns; run++) binding.run();
parentPort?.postMessage(sum.copyToHost());
if (isTidy) session[Symbol.dispose]();
