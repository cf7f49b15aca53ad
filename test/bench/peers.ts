/** Runs the peers, each in a separate process, from their own folder and packages. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

import type { Load, LoadFigures } from "./load/run-load.ts";
import type { TransformersJsDtype } from "./write-transformers-js-model.ts";

const peersFolder = fileURLToPath(new URL("./peers/", import.meta.url));
const installCommand = "npm install --ignore-scripts --prefix test/bench/peers";

export interface LlamaCppOptions {
  readonly threads: number;
  readonly prefillTokens: number;
  readonly decodeTokens: number;
  readonly contextTokens: number;
  readonly concurrency: readonly number[];
}

export interface SpeedFigures {
  readonly prefillTokensPerSecond: number;
  /** By number of sequences. */
  readonly decodeTokensPerSecond: Readonly<Record<number, number>>;
}

export interface TransformersJsOptions {
  readonly dtype: TransformersJsDtype;
  readonly threads: number;
  readonly decodeTokens: number;
  readonly promptTokenIds: readonly number[];
}

export interface TransformersJsFigures {
  readonly decodeTokensPerSecond: number;
  /** Its greedy output. */
  readonly tokenIds: readonly number[];
}

/** @throws Error that says how to install the peers, if this one is missing. */
export function requirePeer(packageName: "node-llama-cpp" | "@huggingface/transformers"): void {
  if (existsSync(join(peersFolder, "node_modules", packageName))) return;
  throw new Error(`${packageName} is not installed; run: ${installCommand}`);
}

export async function measureLlamaCpp(gguf: string, options: LlamaCppOptions): Promise<SpeedFigures> {
  return (await runPeer("llama-cpp.ts", [gguf, JSON.stringify(options)])) as SpeedFigures;
}

export async function measureLlamaCppLoad(
  gguf: string,
  load: Load & { readonly threads: number; readonly vocabSize: number },
): Promise<LoadFigures> {
  return (await runPeer("llama-cpp-load.ts", [gguf, JSON.stringify(load)])) as LoadFigures;
}

/** @param folder Absolute path of a model in the hub's layout. */
export async function measureTransformersJs(
  folder: string,
  options: TransformersJsOptions,
): Promise<TransformersJsFigures> {
  return (await runPeer("transformers-js.ts", [folder, JSON.stringify(options)])) as TransformersJsFigures;
}

/**
 * Pictures per second, all requested at once. @param folder Absolute path of a folder with a preprocessor_config.json.
 */
export async function measureTransformersJsImages(folder: string, file: string, pictures: number): Promise<number> {
  const figures = await runPeer("transformers-js-images.ts", [folder, file, JSON.stringify({ pictures })]);
  return (figures as { readonly picturesPerSecond: number }).picturesPerSecond;
}

/** Returns the parsed last line of the script's output; passes its stderr on. */
async function runPeer(script: string, options: readonly string[]): Promise<unknown> {
  const child = spawn(process.execPath, [script, ...options], {
    cwd: peersFolder,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [output, [code, signal]] = await Promise.all([text(child.stdout), once(child, "close")]);
  if (code !== 0) throw new Error(`${script} ended with ${code === null ? signal : `code ${code}`}.`);
  return JSON.parse(output.trim().split("\n").at(-1)!);
}
