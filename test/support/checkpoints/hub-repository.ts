/** A checkpoint in a repository of the test suite's hub, and a cache for it. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";

import type { HubConfig } from "../../../engine/contract/config.ts";
import type { HubFileContent, HubServer } from "../servers/hub-server.ts";

const largeFile = /\.(safetensors|onnx|onnx_data)$|^tokenizer\.json$/;

/** The files of a folder and of its folder `onnx/`, stored as the hub stores them. */
export async function readRepository(folder: string): Promise<Map<string, HubFileContent>> {
  const files = new Map<string, HubFileContent>();
  for (const entry of await readdir(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const name = path.slice(folder.length).replace(/^\//, "");
    files.set(name, { bytes: await readFile(path), isLarge: largeFile.test(entry.name) });
  }
  return files;
}

export function textFile(text: string): HubFileContent {
  return { bytes: Buffer.from(text), isLarge: false };
}

export function hubConfigOf(server: HubServer, cacheFolder: string, changes: Partial<HubConfig> = {}): HubConfig {
  const tokenFile = join(cacheFolder, "no-token");
  return { endpoint: server.endpoint, cacheFolder, token: null, tokenFile, isOffline: false, ...changes };
}
