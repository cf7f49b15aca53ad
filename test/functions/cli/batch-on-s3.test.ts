/** `fovea batch` with its input and results on a real S3 server. */
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { CreateBucketCommand, GetObjectCommand, ListObjectsV2Command, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createLastingAnswers, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { startTcpProxy } from "../../support/servers/tcp-proxy.ts";
import { startCli } from "../../support/service/cli-process.ts";
import type { CliProcess } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

interface Result {
  readonly custom_id: string | null;
  readonly response: { readonly status_code: number } | null;
  readonly error: { readonly code: string } | null;
}

const bucket = "batches";
let s3: S3Server;

beforeAll(async () => {
  s3 = await startS3Server();
  await s3.client.send(new CreateBucketCommand({ Bucket: bucket }));
});

afterAll(() => s3.stop());

function line(customId: string, more: object = {}): string {
  const body = { prompt: "a red", max_tokens: 2, temperature: 0, ...more };
  return JSON.stringify({ custom_id: customId, method: "POST", url: "/v1/completions", body });
}

const ids = (numLines: number): string[] => Array.from({ length: numLines }, (_, index) => `line-${index}`);

async function put(key: string, text: string): Promise<string> {
  await s3.client.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: text }));
  return `s3://${bucket}/${key}`;
}

async function read(key: string): Promise<string> {
  const { Body } = await s3.client.send(new GetObjectCommand({ Bucket: bucket, Key: key }));
  return (await Body?.transformToString()) ?? "";
}

async function keysBelow(prefix: string): Promise<readonly string[]> {
  const { Contents = [] } = await s3.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix }));
  return Contents.map(({ Key = "" }) => Key);
}

const toResults = (text: string): Result[] =>
  text
    .split("\n")
    .slice(0, -1)
    .map((resultLine) => JSON.parse(resultLine) as Result);

const idsOf = (results: readonly Result[]): string[] => results.map((result) => result.custom_id ?? "").toSorted();

function startBatch(input: string, output: string, environment: Readonly<Record<string, string>> = {}): CliProcess {
  return startCli(["batch", "--input", input, "--output", output], {
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    AWS_ACCESS_KEY_ID: "test",
    AWS_SECRET_ACCESS_KEY: "test",
    ...environment,
  });
}

const logged = (cli: CliProcess, message: string): Record<string, unknown> | undefined =>
  cli
    .stderr()
    .split("\n")
    .filter((text) => text.startsWith("{"))
    .map((text) => JSON.parse(text) as Record<string, unknown>)
    .find((entry) => entry.message === message);

test("answers every line of an object into another one, leaves nothing else, and answers nothing twice", async () => {
  const prefix = randomUUID();
  const lines = [...ids(40).map((id) => line(id)), "{", line("line-3"), line("wrong", { temperature: -1 })];
  const input = await put(`${prefix}/my lines.jsonl`, lines.join("\n"));
  const output = `s3://${bucket}/${prefix}/out.jsonl`;
  await using first = startBatch(input, output);
  expect(await first.exitCode, first.stderr()).toBe(0);
  expect(logged(first, "Done.")).toMatchObject({ numSucceeded: 40, numFailed: 1, numBad: 2, numSkipped: 0 });
  expect(logged(first, "input")).toMatchObject({ percent: 100 });
  const text = await read(`${prefix}/out.jsonl`);
  const results = toResults(text);
  expect(results).toHaveLength(43);
  const codes = results.flatMap(({ error }) => error?.code ?? []);
  expect(codes.toSorted()).toEqual(["duplicate_custom_id", "invalid_json"]);
  expect(await keysBelow(prefix)).toEqual([`${prefix}/my lines.jsonl`, `${prefix}/out.jsonl`]);

  // A longer input: only its new line is answered.
  await put(`${prefix}/my lines.jsonl`, [...lines, line("more")].join("\n"));
  await using second = startBatch(input, output);
  expect(await second.exitCode, second.stderr()).toBe(0);
  expect(logged(second, "Done.")).toMatchObject({ numSucceeded: 1, numSkipped: 43 });
  expect((await read(`${prefix}/out.jsonl`)).startsWith(text)).toBe(true);
  expect(toResults(await read(`${prefix}/out.jsonl`))).toHaveLength(44);
});

test.for(["SIGKILL", "SIGTERM"] as const)("resumes a batch after %s", async (signal) => {
  const prefix = randomUUID();
  const numLines = 40;
  await using answers = await createLastingAnswers();
  // Segments are stored every 5 s, when the later answers last.
  const lines = ids(numLines).map((id, index) => line(id, index < 10 ? {} : answers.fields));
  const input = await put(`${prefix}/in.jsonl`, lines.join("\n"));
  const output = `s3://${bucket}/${prefix}/out.jsonl`;
  await using first = startBatch(input, output, {
    ...withLastingAnswers,
    SHUTDOWN_GRACE_SECONDS: "0",
    MAX_NUM_SEQS: "1",
  });
  const segments = async () => (await keysBelow(`${prefix}/out.jsonl.parts/results/batch.`)).length;
  await expect.poll(segments, { timeout: 50_000 }).toBeGreaterThan(0);
  first.child.kill(signal);
  expect(await first.exitCode).toBe(signal === "SIGKILL" ? null : 143);
  expect(await keysBelow(`${prefix}/out.jsonl`)).not.toContain(`${prefix}/out.jsonl`);
  await answers.finish();
  await using second = startBatch(input, output, withLastingAnswers);
  expect(await second.exitCode, second.stderr()).toBe(0);
  expect(logged(second, "Done.")?.numSkipped).toBeGreaterThan(0);
  expect(idsOf(toResults(await read(`${prefix}/out.jsonl`)))).toEqual(ids(numLines).toSorted());
  expect(await keysBelow(prefix)).toEqual([`${prefix}/in.jsonl`, `${prefix}/out.jsonl`]);
});

test(
  "S3 that is lost in the middle ends the run with the reason, and the next run completes it",
  { timeout: 180_000 },
  async () => {
    const prefix = randomUUID();
    await using answers = await createLastingAnswers();
    // Several ranges, so that the input is read from S3 while lines are answered.
    const padding = " ".repeat(4000);
    const lines = ids(1500).map((id, index) => line(id, index < 1400 ? {} : answers.fields) + padding);
    const input = await put(`${prefix}/in.jsonl`, lines.join("\n"));
    const output = `s3://${bucket}/${prefix}/out.jsonl`;
    await using proxy = await startTcpProxy(Number(new URL(s3.endpoint).port));
    const environment = {
      AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${proxy.port}`,
      LOG_LEVEL: "info",
      ...withLastingAnswers,
    };
    await using first = startBatch(input, output, environment);
    await expect.poll(() => logged(first, "input"), { timeout: 50_000 }).toBeDefined();
    proxy.cut();
    await answers.finish();
    expect(await first.exitCode, first.stderr()).toBe(1);
    expect(logged(first, "The batch ended early; run the command again to resume.")).toMatchObject({
      reason: expect.stringMatching(/on S3 failed/),
      advice: expect.stringContaining(`Check that http://127.0.0.1:${proxy.port} can be reached`),
    });
    await using second = startBatch(input, output, withLastingAnswers);
    expect(await second.exitCode, second.stderr()).toBe(0);
    expect(idsOf(toResults(await read(`${prefix}/out.jsonl`)))).toEqual(ids(1500).toSorted());
  },
);

test("a file goes to S3, and an object to standard output", async () => {
  const prefix = randomUUID();
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "in.jsonl");
  await writeFile(
    path,
    `${ids(3)
      .map((id) => line(id))
      .join("\n")}\n`,
  );
  await using upload = startBatch(path, `s3://${bucket}/${prefix}/out.jsonl`);
  expect(await upload.exitCode, upload.stderr()).toBe(0);
  expect(idsOf(toResults(await read(`${prefix}/out.jsonl`)))).toEqual(ids(3));
  const input = await put(`${prefix}/in.jsonl`, line("only"));
  await using print = startBatch(input, "-");
  expect(await print.exitCode, print.stderr()).toBe(0);
  expect(idsOf(toResults(print.stdout()))).toEqual(["only"]);
});

describe("rejects with exit code 2 and says what to do", () => {
  const cases: [string, string, string, Record<string, string>, RegExp][] = [
    [
      "an input that does not exist",
      `s3://${bucket}/none.jsonl`,
      "-",
      {},
      /--input s3:\/\/batches\/none\.jsonl cannot be read: there is no such object/,
    ],
    ["a bucket that does not exist", "s3://nowhere-17/a.jsonl", "-", {}, /NoSuchBucket\)\. Correct the bucket's name/],
    [
      "an output bucket that does not exist",
      "IN",
      "s3://nowhere-17/a.jsonl",
      {},
      /--output .*Correct the bucket's name/,
    ],
    ["a bucket without an object", `s3://${bucket}`, "-", {}, /--input is s3:\/\/batches: expected s3:\/\/bucket\/key/],
    ["a folder as output", "IN", `s3://${bucket}/folder/`, {}, /--output is .*: expected s3:\/\/bucket\/key/],
    ["one object for both", "IN", "IN", {}, /--input and --output are the same object/],
    ["an output that is something else", "IN", "OTHER", {}, /contains something other than results: line 1/],
    [
      "no region",
      "IN",
      "-",
      { AWS_ENDPOINT_URL_S3: "", AWS_REGION: "", AWS_CONFIG_FILE: "/dev/null" },
      /: Region .*\. Set AWS_REGION to the region of the bucket\./,
    ],
    [
      "S3 that cannot be reached",
      "IN",
      "-",
      { AWS_ENDPOINT_URL_S3: "http://127.0.0.1:9" },
      /Check that http:\/\/127\.0\.0\.1:9 can be reached/,
    ],
    [
      "missing credentials",
      "IN",
      "-",
      { AWS_ACCESS_KEY_ID: "", AWS_SECRET_ACCESS_KEY: "", AWS_EC2_METADATA_DISABLED: "true" },
      /Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY/,
    ],
  ];
  test.for(cases)("%s", async ([, input, output, environment, reason]) => {
    const given = await put("given.jsonl", line("a"));
    const other = await put("other.txt", "something else\n");
    const place = (text: string): string => ({ IN: given, OTHER: other })[text] ?? text;
    await using cli = startBatch(place(input), place(output), environment);
    expect(await cli.exitCode, cli.stderr()).toBe(2);
    expect(cli.stderr()).toMatch(reason);
    expect(await read("other.txt")).toBe("something else\n");
  });
});
