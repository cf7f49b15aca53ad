/** Resident memory of the service, less its weights and the KV it has touched. */
import { readFile, readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { DtypeName } from "../../engine/index.ts";
import { limitFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";
import { shape } from "./shape.ts";
import { benchPrompt } from "./engine-throughput.ts";

const numRequests = 8;
const promptTokens = 256;
const outputTokens = 32;
const mebibyte = 2 ** 20;
const limitMebibytes = 150;

/** Bytes of float32 keys and values of the tokens that were computed. */
const touchedKvBytes =
  numRequests * (promptTokens + outputTokens) * shape.numLayers * 2 * shape.numKvHeads * shape.headDim * 4;

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)![1]) * 1024;
}

async function folderBytes(folder: string): Promise<number> {
  const names = await readdir(folder);
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}

export async function benchMemory(model: string, dtypes: readonly DtypeName[], cacheRoot: string): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of dtypes) {
    // A cache folder of its own: what lies in it after the start is this dtype's weights.
    const cacheFolder = join(cacheRoot, `memory-${dtype}`);
    const environment = {
      MODEL: model,
      DTYPE: dtype,
      CACHE_FOLDER: cacheFolder,
      MAX_NUM_SEQS: "8",
      MAX_MODEL_LEN: "1024",
    };
    await (await startAndWait(environment))[Symbol.asyncDispose](); // Prepares the weights, which takes memory once.
    await using server = await startAndWait(environment);
    await Promise.all(
      Array.from({ length: numRequests }, async (_, salt) => {
        const response = await fetch(`${server.url}/v1/completions`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({
            prompt: benchPrompt(promptTokens, salt),
            max_tokens: outputTokens,
            temperature: 0,
            ignore_eos: true,
          }),
        });
        if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
        await response.arrayBuffer();
      }),
    );
    const weightBytes = await folderBytes(join(cacheFolder, "weights"));
    const rest = (await residentBytes(server.pid)) - weightBytes - touchedKvBytes;
    const name = `resident beyond weights and touched KV, ${dtype}`;
    figures.push(
      limitFigure({ name, unit: "MiB", values: [rest / mebibyte], comparison: "<=", limit: limitMebibytes }),
    );
    reportProgress(`${name}: ${(rest / mebibyte).toFixed(0)} MiB`);
  }
  return figures;
}

async function startAndWait(environment: Readonly<Record<string, string>>) {
  const server = await startServerProcess(environment);
  await untilReady(server);
  return server;
}
