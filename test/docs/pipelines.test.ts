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
const [check = "", serve = "", list = "", ask = "", serveRows = ""] = blocks
  .filter(({ kind }) => kind === "sh")
  .map(({ text }) => text);
const settings = check.split("\n").filter((line) => line.startsWith("export"));

test("the tutorial's pipeline is checked, listed and answers about a picture", async () => {
  await using reader = await createReader();
  const stdout = await reader.run(check);
  expect(stdout).toMatch(/^ {2}architecture +LlamaForCausalLM$/m);
  expect(stdout).toMatch(/^ {2}pipeline +siglip-linear$/m);
  expect(stdout).toMatch(/^ {2}weights, vision encoder +[\d.]+ [KM]iB$/m);

  await using service = await reader.serve([...settings, serve].join("\n"));
  expect(await service.ask(list)).toMatchObject({
    data: expect.arrayContaining([
      { id: "siglip-linear", object: "pipeline", module: reader.at("pipelines/siglip-linear"), active: true },
      { id: "minigpt4-7b", object: "pipeline", module: "minigpt4", active: false },
    ]),
    problems: [],
  });
  // A side of 26 pixels has 6 patches of 4.
  const tokens = { prompt_tokens_details: { multimodal_tokens: { image: 36 } } };
  expect(await service.ask(ask)).toMatchObject({
    choices: [{ finish_reason: expect.stringMatching(/^(length|stop)$/) }],
    usage: tokens,
  });
});

test("the pipeline for pictures of any size runs its own pixel program, and takes options of requests", async () => {
  await using reader = await createReader();
  await using service = await reader.serve([...settings, serveRows].join("\n"));
  // The picture has 50 x 83 pixels: 4 x 6 patches of 16, and a token after each row.
  const picture = await readFile(reader.at("picture.png"), "base64");
  const content = [{ type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } }];
  const body = { messages: [{ role: "user", content }], max_tokens: 1, return_token_ids: true };
  const row = [0, 0, 0, 0, 13];
  const whole = await service.chat(body);
  expect(whole.usage.prompt_tokens_details.multimodal_tokens).toEqual({ image: 24 });
  const start = whole.prompt_token_ids.indexOf(row[0]!, 1);
  expect(whole.prompt_token_ids.slice(start, start + 30)).toEqual(Array.from({ length: 6 }, () => row).flat());

  const smaller = await service.chat({ ...body, mm_processor_kwargs: { longest_edge: 48 } });
  expect(smaller.usage.prompt_tokens_details.multimodal_tokens).toEqual({ image: 6 });
  expect(await service.chat({ ...body, mm_processor_kwargs: { longest_edge: 50 } })).toMatchObject({
    error: {
      message: "longest_edge is 50; expected a multiple of 16 up to 480.",
      param: "mm_processor_kwargs.longest_edge",
    },
  });
});

interface ChatAnswer {
  readonly prompt_token_ids: readonly number[];
  readonly usage: { readonly prompt_tokens_details: { readonly multimodal_tokens: object } };
}

/** A reader's folder, with the files of the page. */
async function createReader() {
  const folder = await createTemporaryFolder();
  const at = (path: string): string => join(folder.path, path);
  await writePipelineExample(folder.path);
  await copyFile(join(goldensFolder, "pictures/photo.png"), at("picture.png"));
  const env = {
    PATH: process.env.PATH,
    HOME: process.env.HOME,
    XDG_CACHE_HOME: at("cache"),
    XDG_DATA_HOME: at("data"),
  };
  const runnable = (command: string): string =>
    command
      .replaceAll("npx fovea", `exec node ${join(repository, "functions/cli/main.js")}`)
      .replaceAll("/models/", `${folder.path}/models/`);
  const run = async (command: string): Promise<string> =>
    (await promisify(execFile)("sh", ["-ec", runnable(command)], { cwd: folder.path, env })).stdout;
  return {
    at,
    run,
    async serve(command: string) {
      const service = spawn("sh", ["-ec", runnable(command)], {
        cwd: folder.path,
        env: { ...env, PORT: "0" },
        stdio: ["ignore", "pipe", "ignore"],
      });
      const exited = once(service, "exit");
      const end = async (): Promise<void> => {
        service.kill("SIGTERM");
        await exited;
      };
      try {
        const port = await portOfReadyService(service.stdout);
        return {
          ask: async (asking: string): Promise<unknown> => JSON.parse(await run(asking.replace(":8000/", `:${port}/`))),
          async chat(body: object): Promise<ChatAnswer> {
            const answer = await fetch(`http://localhost:${port}/v1/chat/completions`, {
              method: "POST",
              headers: { "content-type": "application/json" },
              body: JSON.stringify(body),
            });
            return (await answer.json()) as ChatAnswer;
          },
          [Symbol.asyncDispose]: end,
        };
      } catch (error) {
        await end();
        throw error;
      }
    },
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  };
}
