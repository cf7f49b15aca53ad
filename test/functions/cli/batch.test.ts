import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createLastingAnswers, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startCli } from "../../support/service/cli-process.ts";
import type { CliProcess } from "../../support/service/cli-process.ts";
import { startService } from "../../support/service/running-service.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../support/temporary-folder.ts";

interface Result {
  readonly custom_id: string | null;
  readonly response: { readonly status_code: number; readonly body: Record<string, unknown> } | null;
  readonly error: { readonly code: string; readonly message: string; readonly line: number } | null;
}

const processors = {
  LOGITS_PROCESSOR_PATH: new URL("../../../examples", import.meta.url).pathname,
  LOGITS_PROCESSORS: "steering.target-token:TargetToken",
};

const picture = readFileSync(new URL("../../../models/fovea-shapes/examples/scene.png", import.meta.url), "base64");
const question = {
  messages: [
    {
      role: "user",
      content: [
        { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } },
        { type: "text", text: "Describe the picture." },
      ],
    },
  ],
};

let folder: TemporaryFolder;
let numFiles = 0;

beforeAll(async () => {
  folder = await createTemporaryFolder();
});

afterAll(() => folder[Symbol.asyncDispose]());

function line(customId: string, body: object, more: object = {}): string {
  return JSON.stringify({ custom_id: customId, method: "POST", url: "/v1/completions", body, ...more });
}

function chatLine(customId: string, body: object): string {
  return line(customId, body, { url: "/v1/chat/completions" });
}

/** Writes a file of these lines; returns its path and one for the results. */
async function writeInput(lines: readonly string[]): Promise<{ readonly input: string; readonly output: string }> {
  const name = `batch-${numFiles++}`;
  const input = join(folder.path, `${name}.jsonl`);
  await writeFile(input, `${lines.join("\n")}\n`);
  return { input, output: join(folder.path, `${name}-results.jsonl`) };
}

function startBatch(files: { readonly input: string; readonly output: string }, environment = {}): CliProcess {
  return startCli(["batch", "--input", files.input, "--output", files.output], { MAX_NUM_SEQS: "4", ...environment });
}

/** Complete lines only. */
function readResults(output: string): Result[] {
  if (!existsSync(output)) return [];
  const whole = readFileSync(output, "utf8").split("\n").slice(0, -1);
  return whole.map((text) => JSON.parse(text) as Result);
}

async function runBatch(lines: readonly string[], environment: Readonly<Record<string, string>> = {}) {
  const files = await writeInput(lines);
  await using cli = startBatch(files, environment);
  const exitCode = await cli.exitCode;
  const results = new Map(readResults(files.output).map((result) => [result.custom_id ?? "", result]));
  return { exitCode, results, stdout: cli.stdout(), stderr: cli.stderr() };
}

/** The part of an answer that does not depend on the batch size, which changes the last bits of logits. */
function comparable(body: Readonly<Record<string, unknown>>): object {
  const text = JSON.stringify({ ...body, id: "", created: 0, usage: null });
  return JSON.parse(text, (_key, value: unknown) => (typeof value === "number" ? value.toFixed(3) : value)) as object;
}

test("lines get the same answers as over HTTP: texts, pictures, choices, logprobs, errors", async () => {
  const sampled = { temperature: 1, seed: 7, max_tokens: 12 };
  const chats: Record<string, object> = {
    picture: { ...question, temperature: 0 },
    choices: { ...question, ...sampled, n: 3, logprobs: true, top_logprobs: 2 },
    constrained: { ...question, ...sampled, structured_outputs: { choice: ["red", "blue"] } },
    unserved: { ...question, tools: [{}] },
    "no messages": { messages: [] },
    "other model": { ...question, model: "gpt-5" },
  };
  const completions: Record<string, object> = {
    prompts: { prompt: ["a red", "a blue"], ...sampled, n: 2 },
    echoed: { prompt: "a red", ...sampled, echo: true, logprobs: 2 },
    steered: { prompt: "a", max_tokens: 3, ignore_eos: true, logprobs: 0, vllm_xargs: { target_token: 67 } },
    "wrong argument": { prompt: "a", vllm_xargs: { target_token: "x" } },
    "argument of no type": { prompt: "a", vllm_xargs: { target_token: [[67]] } },
    "too hot": { prompt: "a", temperature: 9 },
    "too long": { prompt: Array.from({ length: 3000 }, () => 5) },
  };
  const { exitCode, results } = await runBatch(
    [
      ...Object.entries(chats).map(([id, body]) => chatLine(id, body)),
      ...Object.entries(completions).map(([id, body]) => line(id, body)),
    ],
    processors,
  );
  expect(exitCode).toBe(0);
  expect(results.size).toBe(Object.keys({ ...chats, ...completions }).length);

  await using service = await startService({ MAX_NUM_SEQS: "4", ...processors });
  for (const [id, body] of Object.entries({ ...chats, ...completions })) {
    const path = id in chats ? "/v1/chat/completions" : "/v1/completions";
    const answer = await fetch(service.baseUrl + path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    const { response, error } = results.get(id)!;
    expect({ id, status: response?.status_code, error }).toEqual({ id, status: answer.status, error: null });
    expect(comparable(response!.body)).toEqual(comparable((await answer.json()) as Record<string, unknown>));
  }
});

test("extra_args of a line steer like vllm_xargs, which override them, and they override the service's", async () => {
  const body = { prompt: "a", max_tokens: 2, ignore_eos: true, skip_special_tokens: false };
  const target = (id: number) => ({ target_token: id });
  const { results } = await runBatch(
    [
      line("by default", body),
      line("by the line", body, { extra_args: target(68) }),
      line("by the body", { ...body, vllm_xargs: target(69) }, { extra_args: target(68) }),
      line("directly", { ...body, vllm_xargs: target(68) }),
      line("refused", body, { extra_args: target(-1) }),
    ],
    { ...processors, LOGITS_PROCESSOR_DEFAULT_ARGS: JSON.stringify(target(67)) },
  );
  const textOf = (id: string) => (results.get(id)!.response!.body.choices as { text: string }[])[0]!.text;
  const texts = ["by default", "by the line", "by the body"].map(textOf);
  expect(new Set(texts).size).toBe(3);
  expect(textOf("by the line")).toBe(textOf("directly"));
  expect(results.get("refused")?.response).toMatchObject({
    status_code: 400,
    body: { error: { param: "vllm_xargs", message: "target_token must be a token id, got -1." } },
  });
});

test("invalid lines have errors with their numbers, and the others are answered", async () => {
  const good = { prompt: "a", max_tokens: 1 };
  const long = line("long", { prompt: "x".repeat(80_000) });
  const lines = ["{", line("a", good), "", line("a", good), line("b", good, { method: "PUT" }), long, line("c", good)];
  const files = await writeInput(lines);
  for (const numSkipped of [0, 6]) {
    await using cli = startBatch(files, { MAX_BODY_BYTES: "1024" });
    expect(await cli.exitCode).toBe(0);
    expect(cli.stderr()).toMatch(new RegExp(`"message":"Done\\.",.*"numSkipped":${numSkipped},`));
    const results = readResults(files.output);
    const answered = results.filter(({ response }) => response !== null);
    expect(new Set(answered.map(({ custom_id: id }) => id))).toEqual(new Set(["a", "c"]));
    const errors = results.flatMap(({ error }) => (error === null ? [] : [error]));
    expect(new Map(errors.map((error) => [error.line, error.code]))).toEqual(
      new Map([
        [1, "invalid_json"],
        [4, "duplicate_custom_id"],
        [5, "invalid_value"],
        [6, "line_too_long"],
      ]),
    );
    expect(results).toHaveLength(6);
  }
});

test("no line is rejected because the queue is full, whatever its number of sequences and the limits", async () => {
  const numSequences = [1, 3, 2, 4, 1, 1, 4, 2];
  const { results } = await runBatch(
    numSequences.map((n, index) => line(`line-${index}`, { prompt: "a", n, temperature: 1, max_tokens: 4 })),
    { MAX_NUM_SEQS: "4", MAX_NUM_WAITING: "0" },
  );
  expect([...results.values()].map(({ response }) => response?.status_code)).toEqual(numSequences.map(() => 200));
});

/** A line with an answer of several tokens. */
const seededLine = (seed: number, more: object = {}) =>
  line(`line-${seed}`, { prompt: "a red", max_tokens: 20, ignore_eos: true, temperature: 1, seed, ...more });

test.for([
  ["SIGKILL", "25", null],
  ["SIGTERM", "25", 143],
  ["SIGINT", "0", 130],
] as const)("after %s and %s s in the middle another run resumes, and every line has one result", async (ending) => {
  const [signal, SHUTDOWN_GRACE_SECONDS, code] = ending;
  await using answers = await createLastingAnswers();
  const numLines = 80;
  const lines = Array.from({ length: numLines }, (_, seed) => seededLine(seed, seed < 10 ? {} : answers.fields));
  const files = await writeInput(lines);
  const environment = { MAX_NUM_SEQS: "4", SHUTDOWN_GRACE_SECONDS, ...withLastingAnswers };
  await using first = startBatch(files, environment);
  await expect.poll(() => readResults(files.output).length).toBeGreaterThan(0);
  first.child.kill(signal);
  // Within the grace, lines in progress are answered.
  await expect.poll(first.stderr).toContain(signal === "SIGTERM" ? '"message":"Stopping."' : "");
  if (signal !== "SIGINT") await answers.finish();
  expect(await first.exitCode).toBe(code);
  const early = readResults(files.output);
  expect(early.length).toBeLessThan(numLines);

  await answers.finish();
  await using second = startBatch(files, environment);
  expect(await second.exitCode).toBe(0);
  const results = readResults(files.output);
  expect(results.slice(0, early.length)).toEqual(early);
  const ids = results.map(({ custom_id: id }) => id!);
  expect(ids.toSorted()).toEqual(lines.map((_, index) => `line-${index}`).toSorted());
  expect(results.every(({ response }) => response?.status_code === 200)).toBe(true);
});

test("when the engine dies, no line gets an error, and another run resumes", async () => {
  const dying = new URL("../../engine/exiting-processor.ts", import.meta.url).pathname;
  const lines = Array.from({ length: 12 }, (_, seed) => seededLine(seed));
  const files = await writeInput([...lines, line("short", { prompt: "a", max_tokens: 1 })]);
  await using first = startBatch(files, { MAX_NUM_SEQS: "8", LOGITS_PROCESSORS: `${dying}:Exiting` });
  expect(await first.exitCode).toBe(1);
  expect(readResults(files.output)).toEqual([]);
  expect(first.stderr()).toContain('"message":"Stopped; run the command again to resume."');

  await using second = startBatch(files);
  expect(await second.exitCode).toBe(0);
  expect(readResults(files.output).map(({ response }) => response?.status_code)).toEqual(Array(13).fill(200));
});

test("standard input and output carry lines, and the log goes elsewhere", async () => {
  await using cli = startCli(["batch", "--input", "-", "--output", "-"], {}, `${line("a", { prompt: "a" })}\n`);
  expect(await cli.exitCode).toBe(0);
  const results = cli.stdout().trimEnd().split("\n");
  expect(results.map((text) => (JSON.parse(text) as Result).custom_id)).toEqual(["a"]);
  expect(cli.stderr()).toContain('"message":"Done."');
});

test("a reader of standard output that has ended ends the batch, and the log says so", async () => {
  const lines = Array.from({ length: 40 }, (_, index) => line(`${index}`, { prompt: "a" }));
  await using cli = startCli(["batch", "--input", "-", "--output", "-"], {}, `${lines.join("\n")}\n`);
  cli.child.stdout?.destroy();
  expect(await cli.exitCode).toBe(1);
  expect(JSON.parse(cli.stderr().trim().split("\n").at(-1)!)).toMatchObject({
    level: "error",
    message: "The batch ended early; run the command again.",
    reason: "The program that reads standard output has ended.",
  });
});

test("results without room on the disk end the batch, and the log names the place and what to do", async () => {
  const { input } = await writeInput([line("a", { prompt: "a" })]);
  const command = ["batch", "--input", input, "--output", "-"];
  // A device that is always full.
  const script = 'exec "$0" functions/cli/main.js "$@" > /dev/full';
  const { status, stderr } = spawnSync("sh", ["-c", script, process.execPath, ...command], { encoding: "utf8" });
  expect(status).toBe(1);
  const last = JSON.parse(stderr.trim().split("\n").at(-1)!) as Record<string, unknown>;
  expect(last).toMatchObject({
    level: "error",
    message: "The batch ended early; run the command again.",
    reason: "Standard output cannot be written: ENOSPC: no space left on device, write.",
    advice: "Make room on the disk.",
  });
  expect(last).not.toHaveProperty("error");
});

test("a batch continues without the reader of its log", async () => {
  const { input, output } = await writeInput([line("a", { prompt: "a" }), line("b", { prompt: "b" })]);
  await using cli = startCli(["batch", "--input", input, "--output", output]);
  cli.child.stderr?.destroy();
  expect(await cli.exitCode).toBe(0);
  expect(readFileSync(output, "utf8").trim().split("\n")).toHaveLength(2);
});

test.for<[string, string[], RegExp]>([
  [
    "no files",
    [],
    /^fovea: batch needs --input: a file, s3:\/\/bucket\/key, or -\.\nfovea: batch needs --output: a file, s3:/,
  ],
  ["an input that is not there", ["--input", "/nowhere", "--output", "-"], /--input \/nowhere cannot be read: ENOENT/],
  [
    "a folder as input",
    ["--input", "docs", "--output", "-"],
    /^fovea: --input docs is a folder: name a file in it\.\n$/,
  ],
  ["one file for both", ["--input", "package.json", "--output", "package.json"], /are the same file, package\.json/],
  [
    "another file as output",
    ["--input", "README.md", "--output", "package.json"],
    /contains something other than results/,
  ],
  ["files for another command", ["--input", "a"], /needs --output/],
])("%s: 2", async ([, args, problem]) => {
  await using cli = startCli(["batch", ...args]);
  expect(await cli.exitCode).toBe(2);
  expect(cli.stderr()).toMatch(problem);
});

test("a model that does not load exits with 1, a logits processor that does not load with 2", async () => {
  const files = await writeInput([line("a", { prompt: "a" })]);
  for (const [environment, code] of [
    [{ MODEL: "/nowhere/at/all" }, 1],
    [{ LOGITS_PROCESSORS: "no.such:Thing" }, 2],
  ] as const) {
    await using cli = startBatch(files, environment);
    expect(await cli.exitCode).toBe(code);
    expect(cli.stderr()).toContain("The batch ended early; run the command again to resume.");
  }
});
