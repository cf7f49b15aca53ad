/** The result files of a batch, from its log. */
import { join } from "node:path";
import { expect, test } from "vitest";

import { batchRecord } from "../../../functions/batch/batch-record.ts";
import { DamageLog } from "../../../functions/batch/damaged-records.ts";
import { createFolderResultLogs } from "../../../functions/batch/folder-result-logs.ts";
import { writeResultFiles } from "../../../functions/batch/result-files.ts";
import { responseLine } from "../../../functions/batch/result-line.ts";
import { StoredFiles } from "../../../functions/batch/stored-files.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createFolderObjectStore } from "../../../functions/storage/folder-object-store.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const chatUsage = {
  prompt_tokens: 10,
  completion_tokens: 5,
  total_tokens: 15,
  prompt_tokens_details: { cached_tokens: 4, multimodal_tokens: { image: 0 } },
  completion_tokens_details: { reasoning_tokens: 3 },
};
const completionUsage = { prompt_tokens: 100, completion_tokens: 50, total_tokens: 150 };
const responseUsage = {
  input_tokens: 20,
  input_tokens_details: { cached_tokens: 8, cache_write_tokens: 0 },
  output_tokens: 7,
  output_tokens_details: { reasoning_tokens: 2 },
  total_tokens: 27,
};

test("the usage of a batch is the sum of its answers: chats, completions and Responses", async () => {
  await using folder = await createTemporaryFolder();
  const logger = createLogger({ level: "error", write() {} });
  const store = createFolderObjectStore(folder.path);
  const files = new StoredFiles({ store, now: () => 0, retentionMs: null, damage: new DamageLog(logger) });
  const logs = createFolderResultLogs(join(folder.path, "results"), logger);
  const log = await logs.open("batch", new AbortController().signal);
  for (const [id, usage] of Object.entries({ chatUsage, completionUsage, responseUsage })) {
    await log.append(responseLine(id, { statusCode: 200, requestId: "request", body: { usage } }));
  }
  await log.flush();
  const record = batchRecord.parse({
    batch: {
      id: "batch_1",
      object: "batch",
      endpoint: "/v1/responses",
      model: "tiny",
      errors: null,
      input_file_id: files.newId(),
      completion_window: "24h",
      status: "finalizing",
      output_file_id: null,
      error_file_id: null,
      created_at: 0,
      in_progress_at: 0,
      expires_at: 86_400,
      finalizing_at: 0,
      completed_at: null,
      failed_at: null,
      expired_at: null,
      cancelling_at: null,
      cancelled_at: null,
      request_counts: { total: 3, completed: 0, failed: 0 },
      usage: null,
      metadata: null,
    },
    tenant: "",
    outputFileId: files.newId(),
    errorFileId: files.newId(),
    ending: null,
    numFruitlessStarts: 0,
  });
  const results = await writeResultFiles(record, { log, expected: null, readInput: null }, files);
  await log.close();
  expect(results).toMatchObject({ numSucceeded: 3, numFailed: 0 });
  expect(results.usage).toEqual({
    input_tokens: 130,
    input_tokens_details: { cached_tokens: 12 },
    output_tokens: 62,
    output_tokens_details: { reasoning_tokens: 5 },
    total_tokens: 192,
  });
});
