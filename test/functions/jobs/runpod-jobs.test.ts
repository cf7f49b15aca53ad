/** The service as the worker of a RunPod endpoint: inputs, answers, streams, cancellation, failures of RunPod's API. */
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { createLastingAnswers, endless, withLastingAnswers } from "../../support/requests/lasting-answers.ts";
import { startRunpodServer } from "../../support/servers/runpod-server.ts";
import type { RunpodJob, RunpodServer } from "../../support/servers/runpod-server.ts";
import { startService } from "../../support/service/running-service.ts";
import type { RunningService } from "../../support/service/running-service.ts";

const messages = [{ role: "user", content: "Hello?" }];
const short = { max_tokens: 4, temperature: 0 };
const chat = { messages, ...short };

let server: RunpodServer;
let service: RunningService;

beforeAll(async () => {
  server = await startRunpodServer();
  service = await startService({
    JOB_SOURCE: "runpod",
    SERVED_MODEL_NAME: "tiny",
    MAX_NUM_SEQS: "4",
    ...server.environment(),
  });
});

afterAll(async () => {
  await service[Symbol.asyncDispose]();
  await server.stop();
});

function run(input: unknown): string {
  return server.run(JSON.stringify(input));
}

async function ended(id: string): Promise<RunpodJob> {
  await expect.poll(() => server.job(id).status).toMatch(/COMPLETED|FAILED/);
  return server.job(id);
}

const answer = (object: string) => ({
  object,
  model: "tiny",
  choices: [{ index: 0, finish_reason: expect.stringMatching(/length|stop/) as string }],
});

describe("inputs", () => {
  const forms: readonly (readonly [string, unknown, string])[] = [
    ["a chat request", chat, "chat.completion"],
    ["a completion request", { prompt: "Hello", ...short }, "text_completion"],
    ["worker-vllm's messages", { messages, sampling_params: short }, "chat.completion"],
    ["worker-vllm's prompt", { prompt: "Hello", sampling_params: short, min_batch_size: 1 }, "text_completion"],
    ["both, of which messages count", { prompt: "Hello", messages, sampling_params: short }, "chat.completion"],
    ["worker-vllm's route", { route: "/v1/chat/completions", method: "POST", body: chat }, "chat.completion"],
  ];
  test.for(forms)("accepts %s", async ([, input, object]) => {
    const job = await ended(run(input));
    expect(job).toMatchObject({ status: "COMPLETED", output: [answer(object)], chunks: [], isStream: false });
  });

  const openAi: readonly (readonly [string, unknown, string])[] = [
    ["/v1/chat/completions", chat, "chat.completion"],
    ["/openai/v1/completions", { prompt: "Hello", ...short }, "text_completion"],
  ];
  test.for(openAi)("answers an OpenAI client at %s in the stream as well", async ([route, body, object]) => {
    const job = await ended(run({ openai_route: route, openai_input: body }));
    expect(job).toMatchObject({ status: "COMPLETED", output: [answer(object)], isStream: true });
    expect(job.chunks).toEqual(job.output);
  });

  test.for([
    [{ openai_route: "/v1/models" }, true],
    [{ openai_route: "/openai/v1/models", openai_input: {} }, true],
    [{ route: "/v1/models" }, false],
    [{ route: "/v1/models", body: {} }, false],
  ] as const)("answers %j with the models", async ([input, usesStream]) => {
    const job = await ended(run(input));
    expect(job.output).toMatchObject([{ object: "list", data: [{ id: "tiny", object: "model" }] }]);
    expect(job.chunks).toEqual(usesStream ? job.output : []);
  });

  test("answers a line of a batch with its result line", async () => {
    const id = run({ custom_id: "mine", url: "/v1/chat/completions", body: chat });
    const job = await ended(id);
    expect(job.output).toMatchObject({ id, custom_id: "mine", error: null });
    expect(job.output).toMatchObject({ response: { status_code: 200, body: answer("chat.completion") } });
  });

  const bad: readonly (readonly [string, string, string | RegExp])[] = [
    ["null", "null", "The message must be a JSON object."],
    ["a number", "7", "The message must be a JSON object."],
    ["a list", "[1]", "The message must be a JSON object."],
    ["an empty object", "{}", /messages/],
    ["no JSON", "{messages}", /is not valid JSON at character 1/],
    [
      "another model",
      JSON.stringify({ model: "other", ...chat }),
      /^The model `other` does not exist\. This service has `/,
    ],
    ["another route", JSON.stringify({ route: "/v1/moderations", body: { input: "a" } }), /url must be one of/],
    ["a route that is no text", JSON.stringify({ route: 7, body: chat }), /url must be/],
    ["a wrong field", JSON.stringify({ messages, sampling_params: { temperature: -1 } }), /temperature/],
    ["too deep JSON", `{"messages":${"[".repeat(1000)}${"]".repeat(1000)}}`, /deep|levels/],
    ["3,000,000 objects", `{"messages":[${"{},".repeat(3_000_000)}{}]}`, /more than|limit|too many/i],
    ["a webhook that is not allowed", JSON.stringify({ ...chat, webhook: "http://a.example/" }), /JOB_ALLOWED_TARGETS/],
    ["a file", JSON.stringify({ input: "s3://a/b.jsonl", output: "s3://a/c.jsonl" }), /input/],
  ];
  test.for(bad)("refuses %s with the reason", async ([, input, reason]) => {
    const job = await ended(server.run(input));
    expect(job).toMatchObject({ status: "FAILED", numDeliveries: 1 });
    const { message } = JSON.parse(job.error as string) as { readonly message: string };
    expect(message).toMatch(reason);
  });

  test("refuses a message that is longer than a body may be, with both numbers", async () => {
    await using small = await startService({
      JOB_SOURCE: "runpod",
      MAX_BODY_BYTES: "1MiB",
      ...server.environment(),
      RUNPOD_POD_ID: "small",
    });
    const ids = Array.from({ length: 8 }, () =>
      run({ messages: [{ role: "user", content: "a".repeat(9_900_000) }], ...short }),
    );
    const jobs = await Promise.all(ids.map(ended));
    expect(small.log()).not.toBe("");
    const refusals = jobs.map(({ status, error, worker }) => {
      const { code, message } = JSON.parse(error as string) as { readonly code: string; readonly message: string };
      const hasNumbers = /99\d+ bytes; the limit is 1114112/.test(message);
      return [status, worker === "small" ? [code, hasNumbers] : [code, false]];
    });
    expect(refusals).toEqual(
      jobs.map(({ worker }) => [
        "FAILED",
        worker === "small" ? ["message_too_long", true] : ["context_length_exceeded", false],
      ]),
    );
  });
});

describe("streams", () => {
  const events = (job: RunpodJob): string[] => job.chunks.join("").split("\n\n").slice(0, -1);
  const textOf = (job: RunpodJob): string =>
    events(job)
      .slice(0, -1)
      .map((event) => JSON.parse(event.slice("data: ".length)) as { choices: { delta?: { content?: string } }[] })
      .map(({ choices }) => choices[0]?.delta?.content ?? "")
      .join("");

  const forms: readonly (readonly [string, unknown])[] = [
    ["a chat request", { ...chat, stream: true }],
    ["worker-vllm's messages", { messages, sampling_params: short, stream: true }],
    ["an OpenAI client", { openai_route: "/v1/chat/completions", openai_input: { ...chat, stream: true } }],
    ["a line", { url: "/v1/chat/completions", body: { ...chat, stream: true } }],
  ];
  test.for(forms)("sends %s the events of the HTTP answer, and the whole answer at the end", async ([, input]) => {
    const whole = await ended(run(chat));
    const job = await ended(run(input));
    expect(job).toMatchObject({ status: "COMPLETED", isStream: true });
    expect(events(job).at(-1)).toBe("data: [DONE]");
    const [{ choices }] = whole.output as [{ choices: [{ message: { content: string } }] }];
    expect(textOf(job)).toBe(choices[0].message.content);
    expect(JSON.stringify(job.output)).toContain(JSON.stringify(choices[0].message.content));
  });

  test("includes the usage where the job asks for it", async () => {
    const job = await ended(run({ ...chat, stream: true, stream_options: { include_usage: true } }));
    expect(JSON.parse(events(job).at(-2)!.slice(6))).toMatchObject({ choices: [], usage: { completion_tokens: 4 } });
  });

  test("fails a job whose body is invalid, without a stream", async () => {
    const job = await ended(run({ messages, stream: true, temperature: 7 }));
    expect(job).toMatchObject({ status: "FAILED", chunks: [] });
  });

  test("goes on after chunks that RunPod did not accept at first", async () => {
    server.fail("job-stream", 500, "cut");
    const job = await ended(run({ ...chat, stream: true }));
    expect(server.numFaults()).toBe(0);
    expect(events(job).at(-1)).toBe("data: [DONE]");
  });

  test("delivers the whole answer of a stream that RunPod refuses", async () => {
    server.fail("job-stream", 400);
    const job = await ended(run({ ...chat, stream: true }));
    expect(job).toMatchObject({ status: "COMPLETED", output: [answer("chat.completion")], chunks: [] });
  });
});

describe("life of a job", () => {
  /** RunPod's calls stay open, so the worker hears of a cancellation or a job without a pause. */
  const holdMs = 60_000;

  test("ends a cancelled job at once, and answers the others", async () => {
    await using own = await startRunpodServer({ holdMs });
    await using worker = await startService({ JOB_SOURCE: "runpod", ...own.environment(), ...withLastingAnswers });
    const id = own.run(JSON.stringify({ messages, stream: true, ...endless }));
    await expect.poll(() => own.job(id).chunks.length).toBeGreaterThan(0);
    own.cancel(id);
    await expect.poll(() => worker.log()).toContain("A job was lost to another worker or cancelled.");
    const other = own.run(JSON.stringify(chat));
    await expect.poll(() => own.job(other).status).toBe("COMPLETED");
    expect(own.job(id).status).toBe("CANCELLED");
    expect(own.job(id).output).toBeUndefined();
    expect(own.violations).toEqual([]);
  });

  test("computes a job once that RunPod hands out twice", async () => {
    await using own = await startRunpodServer({ holdMs });
    await using worker = await startService({ JOB_SOURCE: "runpod", ...own.environment(), ...withLastingAnswers });
    await using answers = await createLastingAnswers();
    const input = JSON.stringify({ messages, stream: true, ...answers.fields });
    const id = own.run(input);
    await expect.poll(() => own.job(id).chunks.length).toBeGreaterThan(0);
    own.handOut(`{"id": "${id}", "input": ${input}}`);
    await expect.poll(() => own.numTexts()).toBe(0);
    expect(own.job(id).status).toBe("IN_PROGRESS");
    await answers.finish();
    await expect.poll(() => own.job(id).status).toBe("COMPLETED");
    const other = own.run(JSON.stringify(chat));
    await expect.poll(() => own.job(other).status).toBe("COMPLETED");
    expect(own.calls.filter((call) => call.includes(`${id}?`) && call.includes("job-done"))).toHaveLength(1);
    expect(worker.log()).not.toContain("could not be returned");
    const answerIds = own
      .job(id)
      .chunks.join("")
      .match(/"id":"chatcmpl-\w+"/g);
    expect(new Set(answerIds).size).toBe(1);
  });

  test("ignores answers that are no jobs, and takes the jobs beside them", async () => {
    const texts = ["", "[]", "no", '{"input": {}}', '[{"id": 7, "input": {}}, 3, null]', '{"id": "", "input": {}}'];
    for (const text of texts) server.handOut(text);
    const job = await ended(run(chat));
    expect(job.status).toBe("COMPLETED");
    await expect.poll(() => server.numTexts()).toBe(0);
    await expect.poll(() => service.log()).toContain("RunPod handed out a job without an id.");
  });

  test("gives no result of a job whose worker ends; another worker answers it", async () => {
    await using own = await startRunpodServer({ workerTimeoutMs: 1000 });
    // Each worker has an id of its own: heartbeats of the second one must not keep the jobs of the first.
    const startWorker = () => startService({ JOB_SOURCE: "runpod", ...own.environment(), ...withLastingAnswers });
    const first = await startWorker();
    await using answers = await createLastingAnswers();
    const input = JSON.stringify({ ...chat, ...answers.fields });
    const ids = Array.from({ length: 12 }, () => own.run(input));
    await expect.poll(() => own.jobs().filter(({ status }) => status === "IN_PROGRESS").length).toBeGreaterThan(3);
    await first[Symbol.asyncDispose]();
    expect(own.jobs().filter(({ status }) => status === "FAILED")).toEqual([]);
    await answers.finish();
    await using _second = await startWorker();
    for (const id of ids) await expect.poll(() => own.job(id).status).toBe("COMPLETED");
    expect(own.violations).toEqual([]);
  });
});

describe("failures of RunPod's API", () => {
  test("loses no job when calls for jobs fail", async () => {
    server.fail("job-take", 500, 400, "cut", 502);
    const jobs = await Promise.all([run(chat), run(chat), run(chat)].map(ended));
    expect(jobs.map(({ status }) => status)).toEqual(["COMPLETED", "COMPLETED", "COMPLETED"]);
    await expect.poll(() => server.numFaults()).toBe(0);
    expect(service.log()).toContain("The queue of jobs works again.");
  });

  test("waits after 429", async () => {
    server.fail("job-take", 429);
    await expect.poll(() => server.numFaults()).toBe(0);
    const job = await ended(run(chat));
    expect(job).toMatchObject({ status: "COMPLETED", numDeliveries: 1 });
  });

  test("sends a result again until RunPod takes it", async () => {
    server.fail("job-done", 500, "cut", 429);
    const job = await ended(run(chat));
    expect(job).toMatchObject({ status: "COMPLETED", numDeliveries: 1 });
    expect(server.numFaults()).toBe(0);
  });

  test("fails a job whose result RunPod refuses, with the reason", async () => {
    server.fail("job-done", 413);
    const job = await ended(run(chat));
    expect(job.status).toBe("FAILED");
    expect(JSON.parse(job.error as string)).toMatchObject({
      code: "result_refused",
      message: expect.stringMatching(/RunPod refused the result, which has \d+ bytes, with status 413/) as string,
    });
  });

  test("says of a job whose result and error RunPod refuses that it may be cancelled", async () => {
    server.fail("job-done", 400, 404);
    const id = server.run(JSON.stringify(chat));
    await expect.poll(() => server.numFaults()).toBe(0);
    await expect.poll(() => service.log()).toContain("with status 404: it may be cancelled or timed out.");
    const lines = service
      .log()
      .split("\n")
      .filter((line) => line.includes(id));
    expect(lines.map((line) => (JSON.parse(line) as { message: string }).message)).toEqual([
      "A job was lost to another worker or cancelled.",
    ]);
    server.cancel(id);
  });

  test("keeps its jobs while heartbeats and stop signals fail", async () => {
    server.fail("ping", 500, "cut", "hang");
    server.fail("job-stop", 500, "cut", 429);
    const job = await ended(run(chat));
    expect(job).toMatchObject({ status: "COMPLETED", numDeliveries: 1 });
    await expect.poll(() => server.numFaults()).toBe(0);
  });
});

test("refuses to start outside of a RunPod worker", async () => {
  const settings = { JOB_SOURCE: "runpod", RUNPOD_WEBHOOK_POST_OUTPUT: "https://a.example/job-done" };
  await expect(startService(settings)).rejects.toThrow(
    /missing RUNPOD_WEBHOOK_GET_JOB \(with \/job-take\/ in it\), RUNPOD_WEBHOOK_POST_STREAM, RUNPOD_POD_ID\. RunPod sets them/,
  );
});

test("makes no call that RunPod's SDK would not make", () => {
  expect(server.calls.length).toBeGreaterThan(100);
  expect(server.violations).toEqual([]);
});
