/** Jobs that are files of lines on S3. */
import { randomUUID } from "node:crypto";
import { GetObjectCommand, ListObjectsV2Command, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createLastingAnswers, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import type { RunningService } from "../../support/service/running-service.ts";
import { bucket, failed, returned, short, startJobPlaces } from "./job-places.ts";
import type { JobPlaces, Result } from "./job-places.ts";

let places: JobPlaces;
let aws: S3Server;

beforeAll(async () => {
  places = await startJobPlaces();
  aws = places.aws;
});

afterAll(async () => {
  await places[Symbol.asyncDispose]();
});

/** Lines that are answered while the answers of those behind them last. */
const NUM_ANSWERED = 8;

const put = (Key: string, Body: string) => aws.client.send(new PutObjectCommand({ Bucket: bucket, Key, Body }));

async function linesOf(Key: string): Promise<Result[]> {
  const { Body } = await aws.client.send(new GetObjectCommand({ Bucket: bucket, Key }));
  const text = (await Body?.transformToString()) ?? "";
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Result);
}

test("every line of a file on S3 has a result in the output, and nothing else is left", async () => {
  const prefix = randomUUID();
  const lines = Array.from({ length: 30 }, (_, seed) => {
    const body = { ...short, seed, ...(seed === 7 && { temperature: -1 }) };
    return JSON.stringify({ custom_id: `line-${seed}`, method: "POST", url: "/v1/completions", body });
  });
  await put(`${prefix}/in.jsonl`, [...lines, "{", lines[0]].join("\n"));
  const { queue, start } = await places.startWithQueue({ JOB_ALLOWED_TARGETS: `s3://${bucket}/${prefix}` });
  await using _ = await start();
  const output = `s3://${bucket}/${prefix}/all results ü.jsonl`;
  const job = await queue.add("file", { input: `s3://${bucket}/${prefix}/in.jsonl`, output });
  const result = await returned(queue, job);
  expect(result.response?.body).toEqual({
    object: "fovea.job.file",
    output,
    request_counts: { total: 32, completed: 29, failed: 3 },
  });
  const results = await linesOf(`${prefix}/all results ü.jsonl`);
  expect(results.flatMap(({ custom_id: id, response }) => (response === null ? [] : [id ?? ""])).toSorted()).toEqual(
    Array.from({ length: 30 }, (_, seed) => `line-${seed}`).toSorted(),
  );
  expect(results.flatMap(({ error }) => error?.code ?? []).toSorted()).toEqual(["duplicate_custom_id", "invalid_json"]);
  const { Contents = [] } = await aws.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix }));
  expect(Contents.map(({ Key }) => Key)).toEqual([`${prefix}/all results ü.jsonl`, `${prefix}/in.jsonl`]);
});

test("a file outside of the allowed places and a missing file are refused", async () => {
  const prefix = randomUUID();
  const { queue, start } = await places.startWithQueue({ JOB_ALLOWED_TARGETS: `s3://${bucket}/${prefix}` });
  await using _ = await start();
  const inside = `s3://${bucket}/${prefix}/x.jsonl`;
  const cases = [
    [{ input: `s3://${bucket}/${prefix}-other/in.jsonl`, output: inside }, "input", /does not allow/],
    [{ input: inside, output: `s3://other/${prefix}/out.jsonl` }, "output", /does not allow/],
    [{ input: inside, output: `${inside}.out` }, "input", /there is no object/],
  ] as const;
  for (const [message, param, reason] of cases) {
    const { error } = await failed(queue, await queue.add("file", message));
    expect(error).toMatchObject({ param, message: expect.stringMatching(reason) as string });
  }
});

test("a file that is interrupted resumes where it was", async () => {
  const prefix = randomUUID();
  await using answers = await createLastingAnswers();
  const lines = Array.from({ length: 24 }, (_, seed) => {
    const body = { ...short, temperature: 1, seed, ...(seed >= NUM_ANSWERED && answers.fields) };
    return JSON.stringify({ custom_id: `line-${seed}`, method: "POST", url: "/v1/completions", body });
  });
  await put(`${prefix}/in.jsonl`, lines.join("\n"));
  const settings = { JOB_ALLOWED_TARGETS: `s3://${bucket}/${prefix}`, ...withLastingAnswers };
  const { queue, start } = await places.startWithQueue(settings);
  const input = `s3://${bucket}/${prefix}/in.jsonl`;
  const output = `s3://${bucket}/${prefix}/out.jsonl`;
  const first = await start();
  const job = await queue.add("file", { input, output });
  await expect.poll(() => numAnswered(first)).toBe(NUM_ANSWERED);
  await first[Symbol.asyncDispose]();
  const { Contents = [] } = await aws.client.send(
    new ListObjectsV2Command({ Bucket: bucket, Prefix: `${prefix}/out.jsonl.parts/` }),
  );
  expect(Contents.length).toBeGreaterThan(0);
  await answers.finish();
  await using second = await start();
  const result = await returned(queue, job);
  expect(result.response?.body.request_counts).toEqual({ total: 24, completed: 24, failed: 0 });
  expect((await linesOf(`${prefix}/out.jsonl`)).length).toBe(24);
  expect(await numAnswered(second)).toBe(24 - NUM_ANSWERED);
});

async function numAnswered({ baseUrl }: RunningService): Promise<number> {
  const text = await (await fetch(`${baseUrl}/metrics`)).text();
  const counts = text.matchAll(/^vllm:request_success_total\{.*finished_reason="(?:length|stop)".*\} (\d+)$/gm);
  return [...counts].reduce((sum, [, count]) => sum + Number(count), 0);
}

test("a file that is replaced while it is answered has answers of its new lines only", async () => {
  const prefix = randomUUID();
  await using answers = await createLastingAnswers();
  const write = (numTokens: number, last: object) => {
    const lines = Array.from({ length: 24 }, (_, seed) => {
      const body = {
        prompt: "a",
        max_tokens: numTokens,
        ignore_eos: true,
        seed,
        ...(seed >= NUM_ANSWERED && last),
      };
      return JSON.stringify({ custom_id: `line-${seed}`, method: "POST", url: "/v1/completions", body });
    });
    return put(`${prefix}/in.jsonl`, lines.join("\n"));
  };
  const folder = `s3://${bucket}/${prefix}`;
  const { queue, start } = await places.startWithQueue({ JOB_ALLOWED_TARGETS: folder, ...withLastingAnswers });
  await write(3, answers.fields);
  const first = await start();
  const job = await queue.add("file", { input: `${folder}/in.jsonl`, output: `${folder}/out.jsonl` });
  await expect.poll(() => numAnswered(first)).toBe(NUM_ANSWERED);
  await first[Symbol.asyncDispose]();
  const keys = async () => {
    const { Contents = [] } = await aws.client.send(new ListObjectsV2Command({ Bucket: bucket, Prefix: prefix }));
    return Contents.map(({ Key = "" }) => Key.slice(prefix.length + 1));
  };
  expect(await keys()).toContainEqual(expect.stringMatching(/^out\.jsonl\.parts\//));
  await write(2, {});
  await using _ = await start();
  await returned(queue, job);
  const results = await linesOf(`${prefix}/out.jsonl`);
  expect(results.map(({ response }) => response?.body)).toEqual(
    results.map(() => expect.objectContaining({ usage: expect.objectContaining({ completion_tokens: 2 }) as object })),
  );
  expect(results).toHaveLength(24);
  expect(await keys()).toEqual(["in.jsonl", "out.jsonl"]);
});
