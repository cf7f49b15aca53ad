import { setTimeout as delay } from "node:timers/promises";
import * as fc from "fast-check";

import { batchUrls } from "../../../functions/batch/batch-line.ts";
import type { BatchObject } from "../../../functions/batch/batch-record.ts";
import type { ResultLine } from "../../../functions/batch/result-line.ts";
import type { Answer } from "../answer-reader.ts";
import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { bodyRoutes } from "../generators/bodies.ts";
import { hostileValue, mutation, trickyTexts } from "../generators/hostile-json.ts";
import { Pairs, writeJson } from "../generators/json-tree.ts";
import type { Json } from "../generators/json-tree.ts";
import { prepareSharedStores } from "../shared-stores.ts";
import type { Wire } from "../wire.ts";

const FINAL_DEADLINE_MS = 60_000;
const POLL_MS = 30;

/** The lines of one file, by default all for one endpoint. */
interface BatchFile {
  readonly endpoint: string;
  readonly lines: readonly string[];
  readonly lineEnd: string;
}

const lineEnds = ["\n", "\r\n", "\n\n", "\n \n", "\n\ufeff"] as const;

const oddLines = [
  "",
  "{",
  "null",
  "[]",
  '"a"',
  "\u0000",
  "\u2028",
  "{}".repeat(2),
  "# a",
  "a".repeat(100_000),
  '{"custom_id":"a"}',
  `${"[".repeat(3000)}${"]".repeat(3000)}`,
] as const;

function batchFile({ target, bodies }: (typeof bodyRoutes)[number]): fc.Arbitrary<BatchFile> {
  const customId = fc.oneof(
    { weight: 6, arbitrary: fc.uuid() },
    { weight: 1, arbitrary: fc.constantFrom("a", "x".repeat(1024), "x".repeat(1025), ...trickyTexts) },
  );
  const rightLine = fc.tuple(customId, bodies).map(
    ([id, body]): Json =>
      new Pairs([
        ["custom_id", id],
        ["method", "POST"],
        ["url", target],
        ["body", notStreamed(body)],
      ]),
  );
  const line = fc
    .tuple(rightLine, fc.array(mutation(hostileValue), { maxLength: 2 }))
    .map(([right, changes]) => writeJson(changes.reduce((json, { apply }) => apply(json), right)));
  // A change within the body leaves the file valid: the line is rejected when its turn comes.
  const bodyLine = fc
    .tuple(customId, bodies, fc.array(mutation(hostileValue), { maxLength: 2 }))
    .map(([id, body, changes]) => {
      const changed = changes.reduce((json: Json, { apply }) => apply(json), body);
      const inner = changed instanceof Pairs ? notStreamed(changed) : body;
      return writeJson(
        new Pairs([
          ["custom_id", id],
          ["method", "POST"],
          ["url", target],
          ["body", notStreamed(inner)],
        ]),
      );
    });
  const lines = fc.oneof(
    { weight: 3, arbitrary: fc.array(bodyLine, { minLength: 1, maxLength: 12 }) },
    {
      weight: 1,
      arbitrary: fc.array(fc.oneof(line, rightLine.map(writeJson), fc.constantFrom(...oddLines)), { maxLength: 8 }),
    },
  );
  return fc
    .tuple(
      lines,
      fc.oneof({ weight: 4, arbitrary: fc.constant("\n") }, { weight: 1, arbitrary: fc.constantFrom(...lineEnds) }),
    )
    .map(([chosen, lineEnd]) => ({ endpoint: target, lines: chosen, lineEnd }));
}

/** A streamed line makes the whole file invalid. */
function notStreamed(body: Pairs): Pairs {
  return new Pairs(
    body.entries.filter(([key]) => key !== "stream" && key !== "stream_options" && key !== "extra_args"),
  );
}

/** Batch files with hostile lines, from the upload to the results. Some batches are cancelled. */
export const batches: AttackClass = {
  name: "batches",
  title: "Batch files with hostile lines, on S3 and Redis",
  numCases: 16,
  routes: ["POST /v1/batches"],
  prepare: prepareSharedStores,
  attacks: () =>
    fc
      .tuple(
        fc.oneof(...bodyRoutes.filter(({ target }) => batchUrls.some((url) => url === target)).map(batchFile)),
        fc.oneof({ weight: 5, arbitrary: fc.constant(false) }, { weight: 1, arbitrary: fc.constant(true) }),
      )
      .map(([file, isCancelled]): Attack => ({
        route: "POST /v1/batches",
        label: `${file.lines.length} lines for ${file.endpoint}${isCancelled ? ", cancelled" : ""}`,
        shown: `${JSON.stringify(file.lineEnd)} between\n${file.lines.map((line) => shorten(line, 400)).join("\n")}`,
        run: (wire) => runBatch(wire, file, isCancelled),
      })),
  groupSize: 4,
  maxCpuSeconds: 2,
};

async function runBatch(wire: Wire, { endpoint, lines, lineEnd }: BatchFile, isCancelled: boolean): Promise<Answer[]> {
  const text = lines.join(lineEnd).toWellFormed();
  const uploaded = await wire.send({
    method: "POST",
    target: "/v1/files",
    headers: { "content-type": "multipart/form-data; boundary=the-end" },
    body: `--the-end\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--the-end\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n${text}\r\n--the-end--\r\n`,
  });
  if (uploaded.status !== 200) return [uploaded];
  const { id: inputFileId } = JSON.parse(uploaded.text) as { readonly id: string };
  const created = await wire.sendJson("/v1/batches", {
    input_file_id: inputFileId,
    endpoint,
    completion_window: "24h",
  });
  if (created.status !== 200) return [uploaded, created];
  const { id } = JSON.parse(created.text) as BatchObject;
  const answers = [uploaded, created];
  if (isCancelled) answers.push(await wire.send({ method: "POST", target: `/v1/batches/${id}/cancel` }));
  const final = await untilFinal(wire, id);
  answers.push(final);
  const batch = JSON.parse(final.text) as BatchObject;
  const results: ResultLine[] = [];
  for (const fileId of [batch.output_file_id, batch.error_file_id]) {
    if (fileId === null) continue;
    const content = await wire.get(`/v1/files/${fileId}/content`);
    answers.push(content);
    results.push(
      ...content.text
        .split("\n")
        .filter(Boolean)
        .map((line) => JSON.parse(line) as ResultLine),
    );
    await wire.send({ method: "DELETE", target: `/v1/files/${fileId}` });
  }
  await wire.send({ method: "DELETE", target: `/v1/files/${inputFileId}` });
  checkCounts(batch, results);
  return [...answers, ...results.flatMap(toAnswers)];
}

async function untilFinal(wire: Wire, id: string): Promise<Answer> {
  const deadline = performance.now() + FINAL_DEADLINE_MS;
  for (;;) {
    const answer = await wire.get(`/v1/batches/${id}`);
    if (answer.status !== 200) throw new Error(`A batch is gone: ${answer.status} ${answer.text.slice(0, 200)}`);
    if (/"status":"(?:failed|completed|expired|cancelled)"/.test(answer.text)) return answer;
    if (performance.now() > deadline)
      throw new Error(`No answer: the batch does not end: ${answer.text.slice(0, 500)}`);
    await delay(POLL_MS);
  }
}

function checkCounts(batch: BatchObject, results: readonly ResultLine[]): void {
  const { total, completed, failed } = batch.request_counts;
  const shown = `${batch.status}, ${JSON.stringify(batch.request_counts)}, ${results.length} results`;
  if (batch.status === "completed" && (completed + failed !== total || results.length !== total)) {
    throw new Error(`A completed batch has lost lines: ${shown}`);
  }
  if (batch.status === "failed" && (batch.errors?.data.length ?? 0) === 0) {
    throw new Error(`A failed batch says nothing of why: ${shown}`);
  }
  if (new Set(results.map(({ custom_id: id }) => id)).size !== results.length) {
    throw new Error(`A line was answered twice: ${shown}`);
  }
}

/** The answers within a result, to which the rules of all answers apply. */
function toAnswers({ response }: ResultLine): Answer[] {
  if (response === null) return [];
  const { status_code: status, body } = response;
  const headers = { "content-type": "application/json" };
  return [{ method: "POST", target: "a line", status, headers, text: JSON.stringify(body), isComplete: true }];
}
