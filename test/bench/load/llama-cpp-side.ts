/** node-llama-cpp under a load, in a process of its own. */
import { join } from "node:path";

import { measureLlamaCppLoad } from "../peers.ts";
import { benchFolder, numThreads } from "../settings.ts";
import type { BenchDtype } from "../settings.ts";
import { shape } from "../shape.ts";
import { writeGguf } from "../write-gguf.ts";
import type { Load, LoadFigures } from "./run-load.ts";

const quantisations = { int8: "q8_0", int4: "q4_0" } as const satisfies Readonly<Record<BenchDtype, string>>;

export async function measureLlamaCpp(dtype: BenchDtype, load: Load): Promise<LoadFigures> {
  const quantisation = quantisations[dtype];
  const gguf = join(benchFolder, `${quantisation}.gguf`);
  writeGguf(gguf, quantisation);
  return measureLlamaCppLoad(gguf, { ...load, threads: numThreads, vocabSize: shape.vocabSize });
}
