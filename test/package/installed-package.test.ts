/** The archive of `npm pack`, installed into an empty folder: commands, programs, types, examples. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, readFile, symlink } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { pdfOfPictures } from "../support/requests/pdf-writer.ts";
import { createConsumerApp, repository } from "./consumer-app.ts";
import type { ConsumerApp } from "./consumer-app.ts";

/** Time to download packages from the registry that are not in npm's cache yet. */
const INSTALL_MS = 300_000;
const MEGABYTE = 1e6;

const picture = join(repository, "models/fovea-shapes/examples/scene.png");
const description = /^A large red circle in the top left, .* green triangle in the bottom right\.$/m;

let app: ConsumerApp;

beforeAll(async () => {
  app = await createConsumerApp();
}, INSTALL_MS);

afterAll(() => app[Symbol.asyncDispose]());

test("the package contains everything needed to run, within the documented size", () => {
  const paths = app.packed.files.map(({ path }) => path);
  expect(paths).toEqual(
    expect.arrayContaining([
      "LICENSE",
      "README.md",
      "package.json",
      "dist/engine/index.d.ts",
      "dist/engine/model-parts.d.ts",
      "dist/engine/pipeline-parts.d.ts",
      "dist/engine/images/kernel/filter.wasm",
      "dist/functions/playground/index.html",
      "dist/models/fovea-shapes/model.safetensors",
      "docs/embedding.md",
      "examples/embed/describe-picture.ts",
      "infra/README.md",
    ]),
  );
  const unexpected = /(?<!\.d)\.ts$|\/heldout\/|^dist\/test\/(?!contracts\/(logits-processor|test-runner)\.)/;
  expect(paths.filter((path) => !path.startsWith("examples/") && unexpected.test(path))).toEqual([]);
  // Of a thousand modules, only those have types that an entry of the package reaches.
  expect(paths).not.toContain("dist/engine/engine.d.ts");
  expect(app.packed.size).toBeLessThan(6 * MEGABYTE);
  expect(app.packed.unpackedSize).toBeLessThan(9 * MEGABYTE);
});

// The order matters: the install script of onnxruntime-node has failed until the second of these tests.
describe("without the native library, which npm leaves out when its install script fails", () => {
  const remedy = ["install"] as const;

  test("the service ends with the command that installs it", async () => {
    const { exitCode, stdout } = await app.run("npx", ["fovea", "serve"], { PORT: "0" });
    expect(exitCode).toBe(1);
    const { message, reason } = JSON.parse(stdout.trimEnd().split("\n").at(-1)!) as Record<string, string>;
    expect(message).toMatch(/^Cannot serve the model /);
    expect(reason).toMatch(/^The package onnxruntime-node is not installed\. .*api\.nuget\.org/);
    expect(reason).toContain(`: ONNXRUNTIME_NODE_INSTALL=skip npm ${remedy.join(" ")}`);
  });

  test(
    "that command installs it",
    async () => {
      const { exitCode, stderr } = await app.run("npm", remedy, { ONNXRUNTIME_NODE_INSTALL: "skip" });
      expect(stderr).not.toContain("npm error");
      expect(exitCode).toBe(0);
      const { stdout } = await app.run("npx", ["fovea", "check", "--json"]);
      expect(JSON.parse(stdout)).toMatchObject({ architecture: "LlavaForConditionalGeneration" });
    },
    INSTALL_MS,
  );
});

describe("the command", () => {
  test("answers about a picture and a PDF file, steered by a TypeScript file of the folder", async () => {
    // A process group, so that all its processes end together: npx starts the service as a child.
    const service = spawn("npx", ["fovea", "serve", "--logits-processors", "steering:OnlyToken"], {
      cwd: app.path,
      env: { ...app.environment, HOST: "127.0.0.1", PORT: "0" },
      detached: true,
      stdio: ["ignore", "pipe", "inherit"],
    });
    // Not the exit of npx, which does not wait for its child.
    const ended = once(service, "close");
    const log: LogEntry[] = [];
    const lines = createInterface({ input: service.stdout });
    lines.on("line", (line) => log.push(JSON.parse(line) as LogEntry));
    const find = (message: string): LogEntry | undefined => log.find((entry) => entry.message === message);
    try {
      await expect.poll(() => find("Ready."), { timeout: 60_000 }).toBeDefined();
      const ask = async (fields: object): Promise<string> => {
        const response = await fetch(`http://127.0.0.1:${find("Listening.")?.port}/v1/chat/completions`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ ...(await question()), ...fields }),
        });
        const { choices } = (await response.json()) as { choices: readonly { message: { content: string } }[] };
        return choices[0]!.message.content;
      };
      expect(await ask({})).toMatch(description);
      const file = { file_data: (await pdfOfPictures(picture)).toString("base64") };
      const content = [
        { type: "file", file },
        { type: "text", text: "Describe the picture." },
      ];
      expect(await ask({ messages: [{ role: "user", content }] })).toMatch(description);
      const steered = await ask({ max_tokens: 4, ignore_eos: true, vllm_xargs: { only_token: 67 } });
      expect(steered).toBe(steered.slice(0, steered.length / 4).repeat(4));
    } finally {
      process.kill(-service.pid!, "SIGTERM");
      await ended;
    }
    expect(find("Ended.")).toMatchObject({ isClean: true });
  });

  test("prints its version and its settings", async () => {
    const { version } = JSON.parse(await readFile(join(repository, "package.json"), "utf8")) as { version: string };
    expect((await app.run("npx", ["fovea", "--version"])).stdout).toBe(`${version}\n`);
    expect((await app.run("npx", ["fovea", "--help"])).stdout).toContain("LOGITS_PROCESSORS");
  });
});

describe("programs that import it", () => {
  test.for(["nodenext", "bundler"])("have types under moduleResolution %s", async (resolution) => {
    const compiler = join(repository, "node_modules/typescript/bin/tsc");
    const { stdout } = await app.run("node", [compiler, "-p", `tsconfig.${resolution}.json`, "--listFiles"]);
    // Errors in the types of other packages are theirs to fix.
    const errors = stdout.split("\n").filter((line) => /^\S+\(\d+,\d+\): error/.test(line));
    expect(errors.filter((line) => !/^node_modules\/(?!fovea\/)/.test(line))).toEqual([]);
    for (const entry of ["engine/index", "functions/serve", "functions/ai-sdk/language-model"]) {
      expect(stdout).toContain(`node_modules/fovea/dist/${entry}.d.ts`);
    }
  });

  test("run as TypeScript, with a logits processor given as a class", async () => {
    const { stdout, stderr } = await app.run("node", ["program.ts"]);
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual({
      tokenIds: [67, 67, 67],
      logitsProcessors: ["OnlyToken"],
      refusal: "invalid_argument",
      modelId: "shapes",
    });
  });

  test("run as JavaScript, with the HTTP service inside them", async () => {
    const { stdout, stderr } = await app.run("node", ["program.js"]);
    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual({
      numTokens: 3,
      logitsProcessors: ["steering:OnlyToken"],
      isClean: true,
      isEngineError: true,
      wrongSetting: expect.stringMatching(/^PORT is "many"/),
    });
  });
});

describe("docs/embedding.md", () => {
  test("contains programs that answer about a picture", async () => {
    await copyFile(picture, join(app.path, "picture.png"));
    const described = await app.run("node", ["describe.ts"]);
    expect(described).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(description) });
    const asked = await app.run("node", ["ask.ts"]);
    expect(asked).toMatchObject({ exitCode: 0, stdout: expect.stringMatching(/^A large red circle .* \{/s) });
  });
});

describe("the suite for logits processors", () => {
  test("runs under node --test, without Vitest", async () => {
    const { exitCode, stdout } = await app.run("node", ["--test", "steering-suite.ts"]);
    expect(stdout).toMatch(/pass 5$/m);
    expect(exitCode).toBe(0);
  });

  test("runs under Vitest", async () => {
    await copyFile(join(app.path, "steering-suite.ts"), join(app.path, "steering.test.ts"));
    await symlink(join(repository, "node_modules/vitest"), join(app.path, "node_modules/vitest"));
    const { stdout } = await app.run("node", ["node_modules/vitest/vitest.mjs", "run", "--no-color"]);
    expect(stdout).toMatch(/Tests\s+5 passed/);
  });
});

describe("examples/embed", () => {
  test("describe-picture.ts answers about a picture without HTTP", async () => {
    const { stdout, stderr } = await app.run("node", ["describe-picture.ts", picture]);
    expect(stdout).toMatch(description);
    expect(stderr).toBe("71 prompt tokens, 36 output tokens, ended by stop\n");
    const failed = await app.run("node", ["describe-picture.ts", "package.json"]);
    expect(failed).toMatchObject({ exitCode: 1, stderr: expect.stringMatching(/^invalid_image: /) });
  });

  test("ai-sdk.ts answers through the AI SDK", async () => {
    const { stdout } = await app.run("node", ["ai-sdk.ts", picture]);
    expect(stdout).toMatch(description);
    expect(stdout).toContain("A red circle: Yes");
  });

  test("serve.js serves, and ends after SIGTERM", async () => {
    const program = spawn("node", ["serve.js"], {
      cwd: app.path,
      env: { ...app.environment, PORT: "0" },
      stdio: ["ignore", "pipe", "ignore"],
    });
    const exited = once(program, "exit");
    const lines: string[] = [];
    createInterface({ input: program.stdout }).on("line", (line) => lines.push(line));
    await expect.poll(() => lines.at(-1), { timeout: 60_000 }).toBe("ready");
    expect((await fetch(`${lines[0]}/health`)).status).toBe(200);
    program.kill("SIGTERM");
    expect(await exited).toEqual([0, null]);
  });
});

interface LogEntry {
  readonly message: string;
  readonly port?: number;
  readonly isClean?: boolean;
}

async function question(): Promise<object> {
  const url = `data:image/png;base64,${await readFile(picture, "base64")}`;
  const content = [
    { type: "image_url", image_url: { url } },
    { type: "text", text: "Describe the picture." },
  ];
  return { messages: [{ role: "user", content }] };
}
