/** Runs the peers, each in a process of its own, from their own folder and packages. */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const peersFolder = fileURLToPath(new URL("./peers/", import.meta.url));

export interface PeerOptions {
  readonly threads: number;
  readonly prefillTokens: number;
  readonly decodeTokens: number;
  readonly contextTokens: number;
  readonly concurrency: readonly number[];
}

export interface PeerFigures {
  readonly prefillTokensPerSecond: number;
  /** By number of sequences. */
  readonly decodeTokensPerSecond: Readonly<Record<number, number>>;
}

/** Throws where the peers are not installed, saying how to install them. */
export function requirePeers(): void {
  if (existsSync(`${peersFolder}node_modules`)) return;
  throw new Error("The peers are not installed; run: npm ci --ignore-scripts --prefix test/bench/peers");
}

export function measureLlamaCpp(gguf: string, options: PeerOptions): Promise<PeerFigures> {
  return runPeer("llama-cpp.ts", [gguf, JSON.stringify(options)]);
}

async function runPeer(script: string, options: readonly string[]): Promise<PeerFigures> {
  const { stdout } = await promisify(execFile)(process.execPath, [script, ...options], { cwd: peersFolder });
  return JSON.parse(stdout.trim().split("\n").at(-1)!) as PeerFigures;
}
