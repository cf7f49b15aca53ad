/** The steps of 8-bit keys and values, from the cache folder if they were measured before. */
import { hash } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { basename, resolve } from "node:path";

import { moduleUrl } from "../../module-url.ts";
import { writeAtomically } from "../../weights/atomic-file.ts";
import { kvWidths } from "../decoder-shape.ts";
import { measureKvSteps, type KvMeasurement } from "./measure-kv-steps.ts";

/** Increase it when the same text gives other steps. */
const STEPS_VERSION = 1;

/**
 * See `measureKvSteps`.
 *
 * @throws EngineError `invalid_configuration` (the cache folder is not writable), `runtime_failed`, `aborted`.
 */
export async function findKvSteps(
  measurement: KvMeasurement,
  { cacheFolder, signal }: { readonly cacheFolder: string; readonly signal?: AbortSignal | undefined },
): Promise<Float32Array[]> {
  const { decoder, tokenIds } = measurement;
  const key = hash("sha256", JSON.stringify([STEPS_VERSION, basename(decoder.path), tokenIds]));
  const file = resolve(cacheFolder, "kv-steps", `${key}.bin`);
  const known = await readFile(file).catch(() => null);
  const widths = kvWidths(decoder).flatMap((width) => [width, width]);
  const numSteps = widths.reduce((sum, width) => sum + width, 0);
  if (known?.byteLength === numSteps * Float32Array.BYTES_PER_ELEMENT) {
    return parted(new Float32Array(new Uint8Array(known).buffer), widths);
  }
  // Imported here because most starts measure nothing.
  const { Piscina } = await import("piscina");
  const filename = moduleUrl("./measure-kv-steps", import.meta.url).href;
  await using thread = new Piscina<KvMeasurement, Float32Array>({ filename, name: measureKvSteps.name, maxThreads: 1 });
  const steps = await thread.run(measurement, signal === undefined ? {} : { signal });
  await writeAtomically(file, `${steps.byteLength} bytes of KV steps`, (target) => writeFile(target, steps));
  return parted(steps, widths);
}

function parted(steps: Float32Array, widths: readonly number[]): Float32Array[] {
  let end = 0;
  return widths.map((width) => steps.subarray(end, (end += width)));
}
