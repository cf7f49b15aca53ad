/** `npm start` and `npx fovea` as users run them: npm, and the server below it. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { delimiter, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import OpenAI from "openai";
import { expect, test } from "vitest";

import { createLastingAnswers, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { testDataHome } from "../../support/service/test-data-home.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const repository = fileURLToPath(new URL("../../../", import.meta.url));

interface StartedByNpm extends AsyncDisposable {
  readonly npmId: number;
  readonly serverId: number;
  readonly port: number;
  readonly stdout: () => string;
  /** npm's. */
  readonly exit: Promise<readonly [code: number | null, signal: NodeJS.Signals | null]>;
}

async function startByNpm(settings: Readonly<Record<string, string>> = {}): Promise<StartedByNpm> {
  const npm = spawn("npm", ["start"], {
    cwd: repository,
    env: {
      PATH: process.env.PATH,
      HOME: process.env.HOME,
      XDG_DATA_HOME: testDataHome,
      HOST: "127.0.0.1",
      PORT: "0",
      ...settings,
    },
    stdio: ["ignore", "pipe", "ignore"],
    // A process group of its own.
    detached: true,
  });
  let stdout = "";
  npm.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  const exit = once(npm, "exit") as unknown as StartedByNpm["exit"];
  await expect.poll(() => stdout, { timeout: 60_000 }).toContain('"message":"Ready."');
  const npmId = npm.pid!;
  const children = await readFile(`/proc/${npmId}/task/${npmId}/children`, "utf8");
  return {
    npmId,
    serverId: Number(children.trim()),
    port: Number(/"message":"Listening\.".*"port":(\d+)/.exec(stdout)![1]),
    stdout: () => stdout,
    exit,
    async [Symbol.asyncDispose]() {
      if (isAlive(-npmId)) process.kill(-npmId, "SIGKILL");
      await exit;
    },
  };
}

function isAlive(processId: number): boolean {
  try {
    process.kill(processId, 0);
    return true;
  } catch {
    return false;
  }
}

async function isPortOpen(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  try {
    await once(socket, "connect");
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

async function expectAllGone({ npmId, serverId, port }: StartedByNpm): Promise<void> {
  await expect.poll(() => [isAlive(serverId), isAlive(npmId), isAlive(-npmId)]).toEqual([false, false, false]);
  expect(await isPortOpen(port)).toBe(false);
}

test.for(["SIGTERM", "SIGINT"] as const)("%s to npm alone drains the server and ends both", async (signal) => {
  await using started = await startByNpm();
  expect(await isPortOpen(started.port)).toBe(true);
  process.kill(started.npmId, signal);
  expect(await started.exit).toEqual([0, null]);
  expect(started.stdout()).toMatch(/"message":"Draining\."[^]*"message":"Ended\.","isClean":true/);
  await expectAllGone(started);
});

test("SIGKILL to npm, which cannot forward it, also drains the server", async () => {
  await using started = await startByNpm();
  process.kill(started.npmId, "SIGKILL");
  await started.exit;
  await expectAllGone(started);
  expect(started.stdout()).toMatch(/"message":"Draining\.","because":"npm has ended"[^]*"isClean":true/);
});

test("SIGTERM to npx, which does not pass it on to the server, drains the server", async () => {
  await using app = await createTemporaryFolder();
  await writeFile(join(app.path, "package.json"), '{"name": "app", "private": true}');
  await mkdir(join(app.path, "node_modules/.bin"), { recursive: true });
  const main = join(repository, "functions/cli/main.js");
  // As npm does when it installs a command.
  await chmod(main, 0o755);
  await symlink(main, join(app.path, "node_modules/.bin/fovea"));
  const commandLine = ["--no", "fovea", "serve"];
  const npx = spawn("npx", commandLine, {
    cwd: app.path,
    env: {
      PATH: `${dirname(process.execPath)}${delimiter}${process.env.PATH}`,
      HOME: process.env.HOME,
      XDG_DATA_HOME: testDataHome,
      HOST: "127.0.0.1",
      PORT: "0",
    },
    stdio: ["ignore", "pipe", "ignore"],
    detached: true,
  });
  try {
    let stdout = "";
    npx.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
    await expect.poll(() => stdout, { timeout: 60_000 }).toContain('"message":"Ready."');
    process.kill(npx.pid!, "SIGTERM");
    await expect.poll(() => isAlive(-npx.pid!)).toBe(false);
    expect(stdout).toMatch(/"message":"Draining\."[^]*"message":"Ended\.","isClean":true/);
  } finally {
    if (isAlive(-npx.pid!)) process.kill(-npx.pid!, "SIGKILL");
  }
});

test("Ctrl-C, which reaches the server directly and through npm, counts as one signal: a stream completes", async () => {
  await using started = await startByNpm(withLastingAnswers);
  await using answers = await createLastingAnswers();
  const client = new OpenAI({ baseURL: `http://127.0.0.1:${started.port}/v1`, apiKey: "none", maxRetries: 0 });
  const stream = await client.completions.create({
    model: "fovea-shapes",
    prompt: "a",
    stream: true,
    ...answers.fields,
  });
  let finishReason: string | null = null;
  let hasSignalled = false;
  for await (const { choices } of stream) {
    finishReason = choices[0]!.finish_reason;
    if (hasSignalled) continue;
    hasSignalled = true;
    process.kill(-started.npmId, "SIGINT");
    await expect.poll(started.stdout).toContain('"message":"Draining."');
    await answers.finish();
  }
  expect(finishReason).toBe("stop");
  expect(await started.exit).toEqual([0, null]);
  await expectAllGone(started);
});
