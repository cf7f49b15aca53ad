import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import OpenAI from "openai";
import { expect, test } from "vitest";

import { createLastingAnswers, endless, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const messages = [{ role: "user" as const, content: "How many shapes are there?" }];

async function startService(environment: Readonly<Record<string, string>> = {}) {
  const cli = startCli([], { HOST: "127.0.0.1", PORT: "0", ...environment });
  const { port } = await cli.waitForLog("Listening.");
  const baseUrl = `http://127.0.0.1:${String(port)}`;
  return { cli, baseUrl, client: new OpenAI({ baseURL: `${baseUrl}/v1`, apiKey: "none", maxRetries: 0 }) };
}

/** vLLM's fields: the end-of-text token is an ordinary token with a text. */
const goingOn = { ignore_eos: true, skip_special_tokens: false };

/** A stream of which one chunk has been read. */
async function openStream(client: OpenAI, fields: typeof endless) {
  const stream = await client.completions.create({ model: "fovea-shapes", prompt: "a", stream: true, ...fields });
  const iterator = stream[Symbol.asyncIterator]();
  await iterator.next();
  return iterator;
}

test("the port opens before the model is loaded, and requests are answered once it is", async () => {
  const { cli, baseUrl, client } = await startService();
  await using _ = cli;
  const health = await fetch(`${baseUrl}/health`);
  expect([200, 503]).toContain(health.status);
  expect((await fetch(`${baseUrl}/livez`)).status).toBe(200);
  await cli.waitForLog("Ready.");
  expect(cli.stdout()).toMatch(/"Listening\."[\s\S]*"Ready\."/);
  expect((await fetch(`${baseUrl}/health`)).status).toBe(200);
  const answer = await client.chat.completions.create({ model: "fovea-shapes", messages, max_tokens: 4 });
  expect(answer.usage?.completion_tokens).toBeGreaterThan(0);
});

test("a start logs the times of its phases in one line, and /metrics has the same", async () => {
  const { cli, baseUrl } = await startService();
  await using _ = cli;
  const { phasesMs, afterMs } = (await cli.waitForLog("Ready.")) as {
    readonly phasesMs: Readonly<Record<string, number>>;
    readonly afterMs: number;
  };
  const { total = 0, runtime, ...inTurn } = phasesMs;
  const names = ["process", "modules", "download", "quantise", "build", "load", "first_step", "first_image"];
  expect(Object.keys(inTurn)).toEqual(names);
  expect(runtime).toBeGreaterThan(0);
  expect(total).toBeLessThanOrEqual(afterMs);
  // Rounding of each.
  const sum = Object.values(inTurn).reduce((before, next) => before + next, 0);
  expect(sum).toBeLessThanOrEqual(total + Object.keys(inTurn).length);

  const metrics = await (await fetch(`${baseUrl}/metrics`)).text();
  for (const [phase, ms] of Object.entries(phasesMs)) {
    const [, seconds] = new RegExp(`^fovea_start_seconds\\{phase="${phase}",.*\\} (\\S+)$`, "m").exec(metrics) ?? [];
    expect(Math.round(Number(seconds) * 1000), phase).toBe(ms);
  }
});

test(
  "SIGTERM in the middle of a stream lets it finish, then ends the process with 0",
  { timeout: 300_000 },
  async () => {
    // Longer than the test takes on a busy machine.
    const { cli, baseUrl, client } = await startService({ SHUTDOWN_GRACE_SECONDS: "300", ...withLastingAnswers });
    await using _ = cli;
    await cli.waitForLog("Ready.");
    await using answers = await createLastingAnswers();
    const stream = await openStream(client, answers.fields);
    cli.child.kill("SIGTERM");
    await cli.waitForLog("Draining.");
    const refused = await fetch(`${baseUrl}/health`).then(
      (response) => response.status,
      () => 503,
    );
    expect(refused).toBe(503);
    await answers.finish();
    let finishReason: string | null = null;
    for (let next = await stream.next(); !next.done; next = await stream.next()) {
      finishReason = next.value.choices[0]!.finish_reason;
    }
    expect(finishReason).toBe("stop");
    expect(await cli.exitCode).toBe(0);
    expect(cli.stdout()).toContain('"isClean":true');
  },
);

test("a stream that exceeds the grace ends with an error event", async () => {
  const { cli, client } = await startService({ SHUTDOWN_GRACE_SECONDS: "0", ...withLastingAnswers });
  await using _ = cli;
  await cli.waitForLog("Ready.");
  const stream = await openStream(client, endless);
  cli.child.kill("SIGINT");
  const readRest = async (): Promise<void> => {
    for (let next = await stream.next(); !next.done; next = await stream.next());
  };
  await expect(readRest()).rejects.toThrow(/shut down before the answer was complete/);
  expect(await cli.exitCode).toBe(1);
});

test("a second signal ends the process at once", async () => {
  const { cli, client } = await startService(withLastingAnswers);
  await using _ = cli;
  await cli.waitForLog("Ready.");
  await openStream(client, endless);
  cli.child.kill("SIGTERM");
  await cli.waitForLog("Draining.");
  cli.child.kill("SIGTERM");
  expect(await cli.exitCode).toBe(143);
});

test.for([["SIGTERM"], ["SIGHUP", "SIGHUP"]] as const)(
  "%j before the model is loaded exits with 0",
  async (signals) => {
    const { cli } = await startService();
    await using _ = cli;
    for (const signal of signals) cli.child.kill(signal);
    expect(await cli.exitCode).toBe(0);
  },
);

test("an engine that dies ends its requests, and /livez requests a restart", async () => {
  const processor = new URL("../../engine/exiting-processor.ts", import.meta.url).pathname;
  const { cli, baseUrl, client } = await startService({ LOGITS_PROCESSORS: `${processor}:Exiting` });
  await using _ = cli;
  await cli.waitForLog("Ready.");
  await using folder = await createTemporaryFolder();
  const sign = join(folder.path, "exit");
  const dyingOnSign = { ...goingOn, vllm_xargs: { exits_when: sign } };
  const stream = await client.chat.completions.create({
    model: "fovea-shapes",
    messages,
    stream: true,
    ...dyingOnSign,
  });
  const read = async (): Promise<void> => {
    for await (const chunk of stream) {
      expect(chunk.object).toBe("chat.completion.chunk");
      await writeFile(sign, "");
    }
  };
  await expect(read()).rejects.toThrow(/Internal error/);
  const statusOf = async (path: string): Promise<number> => (await fetch(baseUrl + path)).status;
  expect([await statusOf("/livez"), await statusOf("/health"), await statusOf("/ping")]).toEqual([500, 503, 500]);
  await expect(client.chat.completions.create({ model: "fovea-shapes", messages })).rejects.toThrow(/Internal error/);
});

test("a lost GPU ends its requests with 503, then the process with 1", async () => {
  const processor = new URL("../../engine/losing-processor.ts", import.meta.url).pathname;
  const LOGITS_PROCESSORS = `${processor}:LosesDevice,${withLastingAnswers.LOGITS_PROCESSORS}`;
  const { cli, client } = await startService({ LOGITS_PROCESSORS });
  await using _ = cli;
  await cli.waitForLog("Ready.");
  const iterator = await openStream(client, endless);
  const other = (async () => {
    while ((await iterator.next()).done !== true);
  })();
  const losingFields = { vllm_xargs: { loses: true } };
  const losing = client.chat.completions.create({ model: "fovea-shapes", messages, ...losingFields });
  await Promise.all([
    expect(losing).rejects.toMatchObject({ status: 503, code: "device_lost" }),
    expect(other).rejects.toMatchObject({ code: "device_lost" }),
  ]);
  expect(await cli.waitForLog("The GPU is lost, and the process ends.")).toMatchObject({ level: "error" });
  expect(await cli.exitCode).toBe(1);
});

const loopingProcessor = new URL("../../engine/looping-processor.ts", import.meta.url).pathname;
const sleepingProcessor = new URL("../../engine/sleeping-processor.ts", import.meta.url).pathname;

test("a looping processor turns /health and then /livez to 503, and the service recovers when the loop ends", async () => {
  const className = `${loopingProcessor}:Looping`;
  const { cli, baseUrl, client } = await startService({
    LOGITS_PROCESSORS: className,
    ENGINE_STEP_TIMEOUT_SECONDS: "1",
  });
  await using _ = cli;
  await cli.waitForLog("Ready.");
  await using folder = await createTemporaryFolder();
  const sign = join(folder.path, "loop-ends");
  const ask = async (xargs: object = {}) =>
    client.chat.completions.create({ model: "fovea-shapes", messages, max_tokens: 8, ...xargs });
  const before = await ask();

  const looping = ask({ vllm_xargs: { loops_until: sign } });
  await expect(looping).rejects.toMatchObject({ status: 503, code: "engine_stalled" });
  for (const path of ["/health", "/readyz", "/livez", "/ping"]) {
    const response = await fetch(baseUrl + path);
    expect([path, response.status]).toEqual([path, 503]);
    expect(await response.json()).toMatchObject({
      status: "stalled",
      message: expect.stringMatching(/^One step of the engine has taken/),
    });
  }
  await expect(ask()).rejects.toMatchObject({ status: 503, code: "engine_stalled" });
  expect(await (await fetch(`${baseUrl}/metrics`)).text()).toMatch(/^fovea_engine_stalled\{.*\} 1$/m);
  const logged = await cli.waitForLog(
    "The step of the engine still has not ended; its requests are ended, and /livez requests a restart.",
  );
  expect(logged).toMatchObject({ logitsProcessor: { name: className }, numRequests: 1 });

  await writeFile(sign, "");
  await expect.poll(async () => (await fetch(`${baseUrl}/health`)).status).toBe(200);
  expect((await fetch(`${baseUrl}/livez`)).status).toBe(200);
  expect((await ask()).choices).toEqual(before.choices);
});

test.for<[string, string, Record<string, unknown>]>([
  ["a loop", `${loopingProcessor}:Looping`, { loops_until: "/never" }],
  ["a native call", `${sleepingProcessor}:Sleeping`, { sleeps: true }],
])("SIGTERM ends a service that is in %s that never ends", async ([what, className, xargs]) => {
  const { cli, client } = await startService({
    LOGITS_PROCESSORS: className,
    ENGINE_STEP_TIMEOUT_SECONDS: "1",
    SHUTDOWN_GRACE_SECONDS: "1",
  });
  await using _ = cli;
  await cli.waitForLog("Ready.");
  const steered = { vllm_xargs: xargs };
  const never = client.chat.completions.create({ model: "fovea-shapes", messages, ...steered });
  never.catch(() => undefined);
  await cli.waitForLog("A step of the engine does not end; new requests are rejected until it does.");
  cli.child.kill("SIGTERM");
  await cli.exitCode;
  // Node itself waits for the native call, so the process has to be killed.
  expect(cli.child.signalCode).toBe(what === "a native call" ? "SIGKILL" : null);
});

test.for(["a logits processor", "a pipeline"])(
  "SIGTERM ends a start that waits for %s that never loads",
  async (what) => {
    await using folder = await createTemporaryFolder();
    // It loads when the file exists.
    const module = join(folder.path, "pipelines.mjs");
    const sign = join(folder.path, "loading");
    const code = `import { writeFileSync } from "node:fs"; writeFileSync(${JSON.stringify(sign)}, ""); await new Promise(() => {});`;
    await writeFile(module, code);
    const { cli } = await startService(
      what === "a pipeline"
        ? { MODEL: join(import.meta.dirname, "../../../models/fovea-tools"), PIPELINE_PATH: folder.path }
        : { LOGITS_PROCESSORS: `${module}:Never` },
    );
    await using _ = cli;
    await expect.poll(() => existsSync(sign)).toBe(true);
    cli.child.kill("SIGTERM");
    expect(await cli.exitCode).toBe(0);
  },
);
