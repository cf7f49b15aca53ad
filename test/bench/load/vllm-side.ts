/** vLLM's build for CPUs under a load, over HTTP. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { openSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

import { freePort } from "../../support/servers/free-port.ts";
import { benchFolder, engineOptions, numThreads } from "../settings.ts";
import { writeQuantisedCheckpoint } from "../write-quantised-checkpoint.ts";
import { MAX_SEQUENCES } from "./engine-side.ts";
import { sendOverHttp } from "./http-load.ts";
import { installPythonPeer } from "./python-environment.ts";
import { runLoad, type Load, type LoadFigures } from "./run-load.ts";

/** In gibibytes, vLLM's unit. */
const KV_CACHE_SPACE = 4;
const SERVED_NAME = "bench";
const POLL_INTERVAL_MS = 500;

/** Its unquantised form, and the compressed-tensors form that it computes in 8 bits. */
export type VllmForm = "bfloat16" | "w8a8";

/**
 * Creates the Python environment if it is missing (about 4 GB). @returns The path of its programs. Text models do not
 * need torchvision and torchaudio, whose builds often do not match a PyTorch for CPUs.
 */
export const installVllm = (): Promise<string> =>
  installPythonPeer({ title: "vLLM", name: "vllm", without: ["torchvision", "torchaudio", "torchcodec"] });

export async function measureVllm(programs: string, form: VllmForm, load: Load): Promise<LoadFigures> {
  const model = form === "bfloat16" ? engineOptions("int8").model : writeQuantisedCheckpoint(form);
  const port = await freePort();
  const options = {
    model,
    port,
    "served-model-name": SERVED_NAME,
    dtype: "bfloat16",
    "max-model-len": load.promptTokens + load.outputTokens + 1,
    "max-num-seqs": MAX_SEQUENCES,
  };
  // The `vllm` command asks for a package of that name, which this build does not have. No two prompts share a prefix.
  const parameters = Object.entries(options).flatMap(([name, value]) => [`--${name}`, String(value)]);
  const command = ["-m", "vllm.entrypoints.openai.api_server", ...parameters, "--no-enable-prefix-caching"];
  const logFile = join(benchFolder, "vllm.log");
  const log = openSync(logFile, "w");
  const child = spawn(join(programs, "python"), command, {
    env: {
      ...process.env,
      VLLM_CPU_KVCACHE_SPACE: String(KV_CACHE_SPACE),
      VLLM_CPU_OMP_THREADS_BIND: `0-${numThreads - 1}`,
    },
    stdio: ["ignore", log, log],
  });
  const exited = once(child, "exit");
  const url = `http://127.0.0.1:${port}`;
  try {
    while (!(await isReady(url))) {
      if (child.exitCode !== null) throw new Error(`vLLM ended with code ${child.exitCode}; see ${logFile}.`);
      await delay(POLL_INTERVAL_MS);
    }
    return await runLoad(load, sendOverHttp(url, SERVED_NAME, load));
  } finally {
    child.kill("SIGTERM");
    await exited;
  }
}

async function isReady(url: string): Promise<boolean> {
  try {
    return (await fetch(`${url}/health`)).ok;
  } catch {
    return false;
  }
}
