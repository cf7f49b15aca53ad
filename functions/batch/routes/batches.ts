/** OpenAI's Batch API. https://platform.openai.com/docs/api-reference/batch */
import type { Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { HttpError } from "../../http/errors.ts";
import { readJsonObject } from "../../http/json-body.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { Batches } from "../batches.ts";
import { batchRequest } from "./batch-request.ts";
import { batchRoute, toList } from "./batch-route.ts";
import { pageQuery } from "./page-query.ts";

/** A batch names a file and little else. */
const MAX_BODY_BYTES = 64 * 1024;

const listQuery = pageQuery("batch");

export function createBatchRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, batches) => {
    const body = await readJsonObject(c.req.raw, MAX_BODY_BYTES, dependencies.bodies);
    const { input_file_id: inputFileId, endpoint, ...rest } = parseFields(batchRequest, body);
    const metadata = rest.metadata ?? null;
    const outputExpiresAfterSeconds = rest.output_expires_after?.seconds ?? null;
    const order = { inputFileId, endpoint, metadata, outputExpiresAfterSeconds };
    const created = await batches.create(c.get("tenant"), order);
    const shownId = inputFileId.slice(0, 100);
    switch (created.kind) {
      case "created":
        Object.assign(c.get("logFields"), { id: created.batch.id });
        return c.json(created.batch);
      case "unknown file":
        throw new HttpError(400, "invalid_value", `input_file_id: there is no file ${shownId}, or it has expired.`, {
          parameter: "input_file_id",
        });
      case "damaged file":
        throw new HttpError(
          400,
          "invalid_value",
          `input_file_id: the record of file ${shownId} is damaged; upload the file again.`,
          { parameter: "input_file_id" },
        );
      case "other purpose":
        throw new HttpError(
          400,
          "invalid_value",
          `input_file_id: ${shownId} was not uploaded with the purpose batch.`,
          {
            parameter: "input_file_id",
          },
        );
      case "too many":
        throw new HttpError(
          429,
          "too_many_batches",
          `${created.limit} batches are unfinished, which is the limit. Wait until one has ended, or cancel one.`,
          { headers: { "Retry-After": "60" } },
        );
      case "store full":
        throw new HttpError(
          507,
          "storage_full",
          `The store has ${created.limit} batches, which is the limit. BATCH_RETENTION_SECONDS after their end, batches are removed.`,
        );
    }
  });
}

export function listBatchesRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, batches) =>
    c.json(toList(await batches.list(c.get("tenant"), parseFields(listQuery, c.req.query())))),
  );
}

export function getBatchRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, batches) => {
    const id = c.req.param("batch") ?? "";
    return c.json((await batches.find(c.get("tenant"), id)) ?? unknownBatch(batches, id));
  });
}

export function cancelBatchRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, batches) => {
    const id = c.req.param("batch") ?? "";
    const cancelled = await batches.cancel(c.get("tenant"), id);
    switch (cancelled.kind) {
      case "cancelling":
        return c.json(cancelled.batch);
      case "ended":
        throw new HttpError(
          409,
          "batch_ended",
          `The batch is ${cancelled.batch.status} and can no longer be cancelled.`,
        );
      case "unknown":
        return unknownBatch(batches, id);
    }
  });
}

function unknownBatch(batches: Batches, id: string): never {
  const reason = batches.isPastRetention(id) ? ": BATCH_RETENTION_SECONDS after their end, batches are removed" : "";
  throw new HttpError(404, "not_found", `There is no batch ${id.slice(0, 100)}${reason}.`, { parameter: "id" });
}
