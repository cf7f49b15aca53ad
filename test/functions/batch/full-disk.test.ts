/** The answer of the routes of files when the disk of the store is full, by the error that the system gives. */
import { Hono } from "hono";
import { expect, test } from "vitest";

import type { AppDependencies } from "../../../functions/app-dependencies.ts";
import { batchRoute } from "../../../functions/batch/routes/batch-route.ts";
import { toErrorAnswer } from "../../../functions/http/errors.ts";
import type { AppEnvironment } from "../../../functions/http/request-trace.ts";
import { createLogger } from "../../../functions/logger.ts";
import { StorageError } from "../../../functions/storage/object-store.ts";

async function answerTo(
  cause: Error,
): Promise<{ readonly status: number; readonly text: string; readonly log: string }> {
  let log = "";
  const logger = createLogger({ level: "error", write: (line) => (log += line) });
  const dependencies = { loadBatches: async () => ({}), logger } as unknown as AppDependencies;
  const app = new Hono<AppEnvironment>();
  app.post(
    "/",
    batchRoute(dependencies, async () => {
      throw new StorageError("Writing", cause);
    }),
  );
  app.onError((error) => {
    const { status, body } = toErrorAnswer(error, "request");
    return Response.json(body, { status });
  });
  const response = await app.request("/", { method: "POST" });
  return { status: response.status, text: await response.text(), log };
}

const systemError = (code: string): Error => Object.assign(new Error(`${code}: write`), { code });

test.for([
  ["ENOSPC", 507, "storage_full", "The disk of BATCH_STORE is full. Delete files, or give it more room."],
  ["EDQUOT", 507, "storage_full", "The disk of BATCH_STORE is full."],
  ["EIO", 503, "storage_unavailable", "the log gives the reason"],
] as const)("a write that fails with %s gets %i and %s", async ([systemCode, status, code, message]) => {
  const answer = await answerTo(systemError(systemCode));
  expect(answer).toMatchObject({ status, log: expect.stringContaining(systemCode) });
  expect(answer.text).toContain(code);
  expect(answer.text).toContain(message);
});
