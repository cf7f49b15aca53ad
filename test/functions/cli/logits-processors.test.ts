import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

import { startCli } from "../../support/service/cli-process.ts";
import type { CliProcess } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

const example = fileURLToPath(new URL("../../../examples/steering/target-token.ts", import.meta.url));
let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  const packageFolder = join(folder.path, "node_modules", "@acme", "steering");
  await mkdir(packageFolder, { recursive: true });
  await copyFile(example, join(packageFolder, "processors.ts"));
  const manifest = {
    name: "@acme/steering",
    type: "module",
    fovea: { logitsProcessors: { target: "./processors.ts:TargetToken" } },
  };
  await writeFile(join(packageFolder, "package.json"), JSON.stringify(manifest));
  await writeFile(
    join(folder.path, "throwing.js"),
    `import { LogitsProcessor } from "fovea";
     export class Throwing extends LogitsProcessor {
       constructor(config, device, options) { super(config, device, options); throw new Error(\`no \${options.what}\`); }
     }`,
  );
});

afterAll(() => folder[Symbol.asyncDispose]());

function serve(logitsProcessors: string, environment: Readonly<Record<string, string>> = {}): CliProcess {
  return startCli(["serve"], {
    HOST: "127.0.0.1",
    PORT: "0",
    LOGITS_PROCESSOR_PATH: folder.path,
    LOGITS_PROCESSORS: logitsProcessors,
    ...environment,
  });
}

test("announced processors of installed packages load without a setting, before the setting's, and steer", async () => {
  await using service = serve("@acme/steering/processors:TargetToken");
  const { port } = await service.waitForLog("Listening.");
  const { logitsProcessors } = await service.waitForLog("Ready.");
  expect(logitsProcessors).toEqual(["target of @acme/steering", "@acme/steering/processors:TargetToken"]);
  const response = await fetch(`http://127.0.0.1:${port as number}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      prompt: "a",
      max_tokens: 3,
      logprobs: 0,
      ignore_eos: true,
      vllm_xargs: { target_token: 67 },
    }),
  });
  const answer = (await response.json()) as { choices: { logprobs: { tokens: string[] } }[] };
  const { tokens } = answer.choices[0]!.logprobs;
  expect(tokens).toHaveLength(3);
  expect(new Set(tokens).size).toBe(1);
});

test.for([
  ["steering", /^Logits processor 2 of 2, steering, could not be loaded: it has no colon;/],
  ["no.such:Thing", /^Logits processor 2 of 2, no\.such:Thing, could not be loaded: the module was not found; tried/],
  [
    '[{"class": "throwing:Throwing", "options": {"what": "licence"}}]',
    /^The constructor of logits processor 2 of 2, throwing:Throwing, threw: no licence$/,
  ],
] as const)("a service that must load %s does not start, and gives the reason", async ([logitsProcessors, reason]) => {
  await using service = serve(logitsProcessors);
  expect(await service.exitCode).toBe(2);
  const last = service.stdout().trimEnd().split("\n").at(-1)!;
  expect(JSON.parse(last)).toMatchObject({
    level: "error",
    code: "invalid_logits_processor",
    reason: expect.stringMatching(reason),
  });
});

test("a default argument that its processor rejects causes a warning; a request with a valid one is served", async () => {
  await using service = serve("", { LOGITS_PROCESSOR_DEFAULT_ARGS: '{"target_token": "x"}' });
  const { port } = await service.waitForLog("Listening.");
  await service.waitForLog("Ready.");
  const warning = await service.waitForLog(
    'LOGITS_PROCESSOR_DEFAULT_ARGS: target of @acme/steering rejects requests that do not override these defaults: target_token must be a token id, got "x".',
  );
  expect(warning.level).toBe("warn");
  const ask = (more: object) =>
    fetch(`http://127.0.0.1:${port as number}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: "a", max_tokens: 1, ...more }),
    });
  expect((await ask({})).status).toBe(400);
  expect((await ask({ vllm_xargs: { target_token: 67 } })).status).toBe(200);
});

test("warnings of the engine and of processors are lines of the log, and those about outdated code are not", async () => {
  await writeFile(
    join(folder.path, "leaving.js"),
    `import { LogitsProcessor } from "fovea";
     export class Leaving extends LogitsProcessor {
       constructor(config, device, options) {
         super(config, device, options);
         process.emitWarning("This is outdated.", "DeprecationWarning", "ACME1");
       }
       isArgmaxInvariant() { return false; }
       updateState() {}
       apply(logits) { void Promise.reject(new Error("late")); return logits; }
     }`,
  );
  await using service = serve("leaving:Leaving", { LOGITS_PROCESSOR_PATH: `${folder.path}:/nowhere/at-all` });
  const { port } = await service.waitForLog("Listening.");
  await service.waitForLog("Ready.");
  const prompt = { prompt: "a", max_tokens: 2 };
  await fetch(`http://127.0.0.1:${port as number}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(prompt),
  });
  const message = "A promise that a logits processor no longer waits for was rejected: late";
  expect(await service.waitForLog(message)).toEqual({ time: expect.any(String) as string, level: "warn", message });
  expect(service.stdout()).toMatch(
    /"level":"warn","message":"The folder \/nowhere\/at-all of the logits processor path/,
  );
  expect(service.stderr()).toMatch(/^\(node:\d+\) \[ACME1\] DeprecationWarning: This is outdated\.\n/);
});
