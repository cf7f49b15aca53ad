/** The examples of docs/batch.md work as shown. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

const repository = new URL("../..", import.meta.url).pathname;

let folder: TemporaryFolder;
let service: RunningService;
let page: string;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  service = await startService({ BATCH_STORE: join(folder.path, "store") });
  page = (await readFile(join(repository, "docs/batch.md"), "utf8")).replaceAll(
    "http://localhost:8000",
    service.baseUrl,
  );
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await folder[Symbol.asyncDispose]();
});

/** The page's code block that contains `text`. */
function block(language: string, text: string): string {
  const blocks = [...page.matchAll(/```(\w+)\n([\s\S]*?)```/g)].filter(([, name]) => name === language);
  const found = blocks.map(([, , code]) => code!).find((code) => code.includes(text));
  if (found === undefined) throw new Error(`The page has no ${language} with ${text}.`);
  return found;
}

async function runIn(command: string, args: readonly string[]): Promise<string> {
  const child = spawn(command, args, { cwd: folder.path, stdio: ["ignore", "pipe", "inherit"] });
  let stdout = "";
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  const [code] = (await once(child, "close")) as [number | null];
  expect(code).toBe(0);
  return stdout;
}

function customIds(text: string): string[] {
  const lines = text.split("\n").filter((line) => line.startsWith('{"id":"batch_req_'));
  return lines.map((line) => (JSON.parse(line) as { custom_id: string }).custom_id).toSorted();
}

test("the page's client example prints a result for each line", async () => {
  await symlink(join(repository, "node_modules"), join(folder.path, "node_modules"));
  await writeFile(join(folder.path, "example.ts"), block("ts", "client.batches.create"));
  expect(customIds(await runIn(process.execPath, ["example.ts"]))).toEqual(["blue", "green", "red"]);
});

test("the page's curl commands print a result for each line", async () => {
  expect(customIds(await runIn("bash", ["-c", block("sh", "/v1/files")]))).toEqual(["green", "red"]);
});
