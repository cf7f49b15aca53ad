/** The tutorial of docs/pipelines.md as a reader follows it: its files and commands, in a folder outside the repository. */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { goldensFolder } from "../support/checkpoints/goldens.ts";
import { writePipelineExample } from "../support/checkpoints/pipeline-example.ts";
import { portOfReadyService } from "../support/service/ready-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const page = await readFile(join(repository, "docs/pipelines.md"), "utf8");
const tutorial = page.slice(page.indexOf("## A pipeline of your own"), page.indexOf("## The contract"));

interface Block {
  /** `sh`, `json`, or `ts` with the path of the file. */
  readonly kind: string;
  readonly text: string;
}

const blocks = [...tutorial.matchAll(/^```(?<kind>.+)\n(?<text>[^]*?)\n```$/gm)].map(
  (match) => match.groups as unknown as Block,
);
const [check = "", serve = "", list = "", ask = ""] = blocks
  .filter(({ kind }) => kind === "sh")
  .map(({ text }) => text);

test("the tutorial's pipeline is checked, listed and answers about a picture", async () => {
  await using folder = await createTemporaryFolder();
  const at = (path: string): string => join(folder.path, path);
  await writePipelineExample(folder.path);
  await copyFile(join(goldensFolder, "pictures/photo.png"), at("picture.png"));

  const runnable = (command: string): string =>
    command
      .replaceAll("npx fovea", `exec node ${join(repository, "functions/cli/main.js")}`)
      .replaceAll("/models/", `${folder.path}/models/`);
  const settings = check.split("\n").filter((line) => line.startsWith("export"));
  const env = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    XDG_CACHE_HOME: at("cache"),
    XDG_DATA_HOME: at("data"),
  };
  const options = { cwd: folder.path, env };

  const { stdout } = await promisify(execFile)("sh", ["-ec", runnable(check)], options);
  expect(stdout).toMatch(/^ {2}architecture +LlamaForCausalLM$/m);
  expect(stdout).toMatch(/^ {2}pipeline +siglip-linear$/m);
  expect(stdout).toMatch(/^ {2}weights, vision encoder +[\d.]+ [KM]iB$/m);

  const service = spawn("sh", ["-ec", runnable([...settings, serve].join("\n"))], {
    cwd: folder.path,
    env: { ...env, PORT: "0" },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const exited = once(service, "exit");
  try {
    const port = await portOfReadyService(service.stdout);
    const run = async (command: string): Promise<unknown> => {
      const toPort = command.replace(":8000/", `:${port}/`);
      return JSON.parse((await promisify(execFile)("sh", ["-ec", toPort], options)).stdout);
    };
    expect(await run(list)).toMatchObject({
      data: expect.arrayContaining([
        { id: "siglip-linear", object: "pipeline", module: at("pipelines/siglip-linear"), active: true },
        { id: "minigpt4-7b", object: "pipeline", module: "minigpt4", active: false },
      ]),
      problems: [],
    });
    // A side of 26 pixels has 6 patches of 4.
    const tokens = { prompt_tokens_details: { multimodal_tokens: { image: 36 } } };
    expect(await run(ask)).toMatchObject({
      choices: [{ finish_reason: expect.stringMatching(/^(length|stop)$/) }],
      usage: tokens,
    });
  } finally {
    service.kill("SIGTERM");
    await exited;
  }
});
