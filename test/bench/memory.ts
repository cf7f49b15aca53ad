/**
 * Resident memory of the service, in MiB (VmRSS: its own pages and the pages of files that it has mapped and touched),
 * less its weights and the KV it has touched.
 *
 * Weights are counted once, and as far as they are resident:
 * - prepared weights at their size on disk, wherever they lie: in a kernel's layout on the heap or in the mapped file.
 *   What a kernel's layout takes beyond that, and mapped pages of weights that a kernel has copied, count as the rest;
 * - tensors of the checkpoint that are read in place (here the embedding table, of which only rows of tokens that
 *   occurred are touched) at the resident pages of its files.
 *
 * Touched KV is the keys and values of the tokens computed; those of one head fill whole pages at these lengths.
 *
 * Measured twice: right after the last answer, with all that the work needed still held for more of it, and at rest.
 */
import { readFile, readdir, realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";

import type { DtypeName } from "../../engine/index.ts";
import { benchPrompt } from "./engine-throughput.ts";
import { limitFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";
import { shape } from "./shape.ts";

const numRequests = 8;
const promptTokens = 256;
const outputTokens = 32;
const mebibyte = 2 ** 20;
/** 150 MB: figures are in MiB, of 2^20 bytes. */
const limitMebibytes = Math.floor(150e6 / mebibyte);
/** Several times the engine's delay before it releases memory. */
const restMs = 1000;

/** Bytes of float32 keys and values of the computed tokens. */
const touchedKvBytes =
  numRequests * (promptTokens + outputTokens) * shape.numLayers * 2 * shape.numKvHeads * shape.headDim * 4;

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)![1]) * 1024;
}

/** Resident bytes of the mappings of files in the folder. */
async function residentFileBytes(pid: number, folder: string): Promise<number> {
  const prefix = `${await realpath(folder)}/`;
  const smaps = await readFile(`/proc/${pid}/smaps`, "utf8");
  let bytes = 0;
  let isInside = false;
  for (const line of smaps.split("\n")) {
    const mapping = /^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$/.exec(line);
    if (mapping !== null) isInside = mapping[1]!.startsWith(prefix);
    else if (isInside) bytes += Number(/^Rss: +(\d+) kB$/.exec(line)?.[1] ?? 0) * 1024;
  }
  return bytes;
}

async function folderBytes(folder: string): Promise<number> {
  const names = await readdir(folder);
  const sizes = await Promise.all(names.map(async (name) => (await stat(join(folder, name))).size));
  return sizes.reduce((sum, size) => sum + size, 0);
}

export async function benchMemory(model: string, dtypes: readonly DtypeName[], cacheRoot: string): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of dtypes) {
    // A separate cache folder: after the start it contains only this dtype's weights.
    const cacheFolder = join(cacheRoot, `memory-${dtype}`);
    const environment = {
      MODEL: model,
      DTYPE: dtype,
      CACHE_FOLDER: cacheFolder,
      MAX_NUM_SEQS: "8",
      MAX_MODEL_LEN: "1024",
      // Otherwise, certificates that the measuring machine adds to Node's own would be counted.
      NODE_EXTRA_CA_CERTS: "",
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
    const preparedBytes = await folderBytes(join(cacheFolder, "weights"));
    for (const moment of ["after the last answer", "at rest"] as const) {
      if (moment === "at rest") await delay(restMs);
      const inPlaceBytes = await residentFileBytes(server.pid, model);
      const resident = await residentBytes(server.pid);
      const rest = resident - preparedBytes - inPlaceBytes - touchedKvBytes;
      const name = `resident beyond weights and touched KV, ${dtype}, ${moment}`;
      figures.push(
        limitFigure({ name, unit: "MiB", values: [rest / mebibyte], comparison: "<=", limit: limitMebibytes }),
      );
      reportProgress(
        `${name}: ${toMebibytes(rest)} of ${toMebibytes(resident)} MiB; prepared weights ` +
          `${toMebibytes(preparedBytes)}, read in place ${toMebibytes(inPlaceBytes)}, KV ${toMebibytes(touchedKvBytes)}`,
      );
    }
  }
  return figures;
}

function toMebibytes(bytes: number): string {
  return (bytes / mebibyte).toFixed(0);
}

async function startAndWait(environment: Readonly<Record<string, string>>) {
  const server = await startServerProcess(environment);
  await untilReady(server);
  return server;
}
