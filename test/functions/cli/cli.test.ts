import { execFile } from "node:child_process";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

import { settingDescriptions } from "../../../functions/settings/config.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

async function runCli(args: readonly string[], environment: Readonly<Record<string, string>> = {}) {
  await using cli = startCli(args, environment);
  const exitCode = await cli.exitCode;
  return { exitCode, stdout: cli.stdout(), stderr: cli.stderr() };
}

test("--print-config shows every setting with its source, secrets masked", async () => {
  const environment = {
    API_KEY: "hunter2",
    AWS_SECRET_ACCESS_KEY: "hunter3",
    AWS_ENDPOINT_URL_S3: "http://user:hunter4@minio:9000",
    JOB_RESULTS: "https://a.example/hook?token=hunter5,s3://answers/x",
    JOB_SOURCE: "redis://redis:6379/0?queue=jobs",
    MAX_NUM_SEQS: "8",
    LIMIT_MM_PER_PROMPT: '{"image": 2}',
  };
  const { exitCode, stdout, stderr } = await runCli(["serve", "--print-config", "--max-num-seqs=4"], environment);
  expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
  expect(stdout).toMatch(/^PORT=8000 +# default$/m);
  expect(stdout).toMatch(/^MAX_NUM_SEQS=4 +# flag$/m);
  expect(stdout).toMatch(/^LIMIT_MM_PER_PROMPT='\{"image": 2\}' +# environment$/m);
  expect(stdout).toMatch(/^API_KEY=\*{8} +# environment$/m);
  expect(stdout).toMatch(/^AWS_SECRET_ACCESS_KEY=\*{8} /m);
  expect(stdout).toMatch(/^AWS_ENDPOINT_URL_S3=http:\/\/\*{8}@minio:9000 /m);
  expect(stdout).toMatch(/^JOB_RESULTS=https:\/\/a\.example\/hook\?\*{8},s3:\/\/answers\/x /m);
  expect(stdout).toMatch(/^JOB_SOURCE=redis:\/\/redis:6379\/0\?queue=jobs /m);
  expect(stdout).not.toContain("hunter");
});

test("a working directory that is gone ends the command with one line", async () => {
  await using folder = await createTemporaryFolder();
  const gone = join(folder.path, "gone");
  const main = fileURLToPath(new URL("../../../functions/cli/main.js", import.meta.url));
  const script = 'mkdir "$1" && cd "$1" && rmdir "$1" && exec "$2" "$3" --print-config';
  await expect(
    promisify(execFile)("/bin/sh", ["-c", script, "sh", gone, process.execPath, main]),
  ).rejects.toMatchObject({
    code: 2,
    stdout: "",
    stderr: "fovea: The working directory no longer exists. Start in a folder that does.\n",
  });
});

test("invalid values exit with 2, and stderr lists all of them", async () => {
  const { exitCode, stdout, stderr } = await runCli(["--dtype", "int5"], { PORT: "80a", API_KEY: ",hunter2" });
  expect({ exitCode, stdout }).toEqual({ exitCode: 2, stdout: "" });
  expect(stderr).toContain('fovea: PORT is "80a": expected an integer from 0 to 65535.\n');
  expect(stderr).toContain('fovea: DTYPE is "int5": expected one of auto, float32, bfloat16, float16, int8, int4.\n');
  expect(stderr).toMatch(/^fovea: API_KEY has a value that does not parse/m);
  expect(stderr).not.toContain("hunter2");
});

test("a name that is close to a setting's is reported, and the start continues", async () => {
  const { exitCode, stderr } = await runCli(["--print-config"], { LOGIT_PROCESSORS: "a:B", MAX_NUM_SEQ: "4" });
  expect(exitCode).toBe(0);
  expect(stderr).toBe(
    "fovea: LOGIT_PROCESSORS is set but is not a setting; did you mean LOGITS_PROCESSORS?\n" +
      "fovea: MAX_NUM_SEQ is set but is not a setting; did you mean MAX_NUM_SEQS?\n",
  );
});

test.for<[string[], RegExp]>([
  [["--max-num-seq", "4"], /There is no option --max-num-seq; did you mean --max-num-seqs\?\n/],
  [["--frobnicate"], /There is no option --frobnicate; --help lists all options\.\n/],
  [["--prot", "8"], /^fovea: There is no option --prot; did you mean --port\?\n$/],
  [["--port"], /--port needs a value: an integer from 0 to 65535\./],
  [["--dtype", "--port", "80"], /^fovea: --dtype needs a value: one of auto, float32, .*\n$/],
  [["--MAX-NUM-SEQS", "4"], /There is no option --MAX-NUM-SEQS; did you mean --max-num-seqs\?\n/],
  [["help", "sreve"], /There is no command sreve;/],
  [["check", "--json=true"], /^fovea: --json takes no value, got true\.\n$/],
  [["--version=1"], /^fovea: --version takes no value, got 1\.\n$/],
  [["render", "--ouput", "x"], /There is no option --ouput; did you mean --output\?\n/],
  [["sreve"], /There is no command sreve; commands: serve, worker, check, batch, render\./],
  [["serve", "now"], /serve takes no arguments, got now\./],
])("%j exits with 2", async ([args, expected]) => {
  const { exitCode, stderr } = await runCli(args);
  expect(exitCode).toBe(2);
  expect(stderr).toMatch(expected);
});

test.for([["--help"], ["check", "--json"], ["render", "--help"], ["--print-config"]])(
  "%j ends silently with the exit code of SIGPIPE if its reader has ended",
  async (args) => {
    await using cli = startCli(args);
    cli.child.stdout?.destroy();
    expect({ exitCode: await cli.exitCode, stderr: cli.stderr() }).toEqual({ exitCode: 141, stderr: "" });
  },
);

test("--help lists every setting, --version prints the version", async () => {
  const help = await runCli(["--help"]);
  expect(help.exitCode).toBe(0);
  expect(settingDescriptions.length).toBeGreaterThan(100);
  for (const { name, description } of settingDescriptions) {
    const line = help.stdout.split("\n").find((each) => each.startsWith(`  ${name} `));
    expect(line).toContain(` ${description}`);
  }
  expect((await runCli(["--version"])).stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

test.for(["serve", "check", "batch", "render", "worker"] as const)("%s --help describes it alone", async (command) => {
  const help = await runCli([command, "--help"]);
  expect(help.exitCode).toBe(0);
  expect(help.stdout).toMatch(new RegExp(`^fovea \\[?${command}\\]? `));
  expect(help.stdout).toContain(`\nExample\n  fovea ${command} `);
  expect(help.stdout).not.toContain("MAX_MODEL_LEN");
  expect(await runCli(["help", command])).toEqual(help);
});

test("a port in use is named, with the remedy and without a stack, and exits with 1", async () => {
  const other = createServer();
  const { promise, resolve } = Promise.withResolvers<void>();
  other.listen(0, "127.0.0.1", resolve);
  await promise;
  const { port } = other.address() as AddressInfo;
  const { exitCode, stdout } = await runCli([], { HOST: "127.0.0.1", PORT: String(port) });
  other.close();
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({
    message: `Cannot listen on 127.0.0.1 port ${port}.`,
    code: "EADDRINUSE",
    advice: "Set PORT to a free port, or end the other program.",
  });
  expect(stdout).not.toContain("stack");
});

test("a port of health checks in use is named with its setting", async () => {
  const other = createServer();
  const { promise, resolve } = Promise.withResolvers<void>();
  other.listen(0, "127.0.0.1", resolve);
  await promise;
  const { port } = other.address() as AddressInfo;
  const { stdout } = await runCli([], { HOST: "127.0.0.1", PORT: "0", PORT_HEALTH: String(port) });
  other.close();
  expect(JSON.parse(stdout.trim().split("\n").at(-1)!)).toMatchObject({
    message: `Cannot listen on 127.0.0.1 port ${port}.`,
    advice: "Set PORT_HEALTH to a free port, or end the other program.",
  });
});

test("a host that this machine lacks is named, with the remedy, and exits with 1", async () => {
  // An address of RFC 5737, which no machine has.
  const { exitCode, stdout } = await runCli([], { HOST: "203.0.113.5", PORT: "0" });
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout)).toMatchObject({ advice: "Set HOST to 0.0.0.0, or to an address of this machine." });
});

test("a bucket that cannot be reached is named, with what to check, and exits with 1", async () => {
  const { exitCode, stdout } = await runCli(["--model", "s3://bucket/llava", "--port", "0"], {
    AWS_ENDPOINT_URL_S3: "http://127.0.0.1:1",
    AWS_REGION: "eu-central-1",
    AWS_ACCESS_KEY_ID: "key",
    AWS_SECRET_ACCESS_KEY: "secret",
  });
  expect(exitCode).toBe(1);
  expect(stdout).toContain("s3://bucket/llava/ cannot be listed (ECONNREFUSED)");
  expect(stdout).toContain("Check the bucket and prefix of MODEL");
});

test("a missing model is named and exits with 1", async () => {
  const { exitCode, stdout } = await runCli(["--model", "/nowhere/at/all", "--port", "0"]);
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout.trim().split("\n").at(-1)!)).toMatchObject({
    message: "Cannot serve the model /nowhere/at/all.",
    reason: "There is no folder /nowhere/at/all.",
    advice: expect.stringContaining("Set MODEL to an existing folder"),
  });
});
