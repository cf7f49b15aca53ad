/** The tutorial of docs/logits-processors.md as a reader follows it: its files and commands, in an empty folder. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { portOfReadyService } from "../support/service/ready-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = await readFile(join(repository, "docs/logits-processors.md"), "utf8");
const blocks = blocksOf(page.slice(page.indexOf("## In five minutes"), page.indexOf("## The contract")));
const testingBlocks = blocksOf(page.slice(page.indexOf("## Testing yours")));

interface Block {
  /** `sh`, `json`, or `ts` with the name of the file. */
  readonly kind: string;
  readonly text: string;
}

function blocksOf(section: string): readonly Block[] {
  return [...section.matchAll(/^```(?<kind>.+)\n(?<text>[^]*?)\n```$/gm)].map(
    (match) => match.groups as unknown as Block,
  );
}

function commandsOf(section: readonly Block[]): string[] {
  return section.filter(({ kind }) => kind === "sh").map(({ text }) => text);
}

async function writeFiles(section: readonly Block[], folder: string): Promise<void> {
  for (const { kind, text } of section) {
    if (kind.startsWith("ts ")) await writeFile(join(folder, kind.slice("ts ".length)), text);
  }
}

function shellIn(folder: string) {
  return { cwd: folder, env: { PATH: process.env.PATH, HOME: process.env.HOME, FOVEA: repository } };
}

test("every command of the tutorial has the documented result", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles(blocks, folder.path);
  const [setFovea, start, ask, askSteered, list] = commandsOf(blocks);
  expect(setFovea).toContain("export FOVEA=");
  const options = shellIn(folder.path);

  const service = spawn("sh", ["-c", start!], {
    ...options,
    env: { ...options.env, PORT: "0" },
    // A process group, so that all its processes end together.
    detached: true,
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exited = once(service, "exit");
  try {
    const port = await portOfReadyService(service.stdout);
    const run = async (command: string): Promise<Answer> => {
      const { stdout } = await promisify(execFile)("sh", ["-c", command.replace(":8000/", `:${port}/`)], options);
      return JSON.parse(stdout) as Answer;
    };
    const described = (await run(ask!)).choices[0]!.message.content;
    expect(described).toContain("red circle");
    const steered = (await run(askSteered!)).choices[0]!.message.content;
    expect(steered).not.toBe(described);
    const words = steered.split(" ");
    expect(new Set(words).size).toBe(words.length);
    expect(blocks.map(({ text }) => text)).toContain(JSON.stringify(await run(list!)));
  } finally {
    process.kill(-service.pid!, "SIGTERM");
    await exited;
  }
});

test("the tutorial's processor passes the suite in a separate folder", async () => {
  await using folder = await createTemporaryFolder();
  await writeFiles([...blocks, ...testingBlocks], folder.path);
  const [command] = commandsOf(testingBlocks);
  const { stdout } = await promisify(execFile)("sh", ["-ec", command!], shellIn(folder.path));
  expect(stdout).toMatch(/pass 5$/m);
});

interface Answer {
  readonly choices: readonly { readonly message: { readonly content: string } }[];
}
