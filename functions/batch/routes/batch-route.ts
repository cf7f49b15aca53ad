/** The common part of the routes of files and batches: they may be off, and their store may fail. */
import type { Context, Handler } from "hono";

import type { AppDependencies } from "../../app-dependencies.ts";
import { HttpError, type HttpErrorOptions } from "../../http/errors.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import { StorageError } from "../../storage/object-store.ts";
import type { Batches } from "../batches.ts";
import { DamagedRecordError } from "../damaged-records.ts";
import { StoreFullError } from "../store-quota.ts";
import type { Page } from "../tenant-records.ts";

export type BatchHandler = (c: Context<AppEnvironment>, batches: Batches) => Promise<Response>;

export function batchRoute({ loadBatches, logger }: AppDependencies, handle: BatchHandler): Handler<AppEnvironment> {
  return async function answer(c) {
    if (loadBatches === undefined) {
      throw new HttpError(404, "batches_off", "This service does not accept files or batches: BATCH_STORE is none.");
    }
    try {
      return await handle(c, await loadBatches());
    } catch (error) {
      if (error instanceof DamagedRecordError) throw damaged(error);
      if (error instanceof StoreFullError) throw storageFull(error);
      if (!(error instanceof StorageError)) throw error;
      logger.error("The store of files and batches does not work.", { requestId: c.get("requestId"), error });
      if (error.isDiskFull) {
        const message = "The disk of BATCH_STORE is full. Delete files, or give it more room.";
        throw new HttpError(507, "storage_full", message, { cause: error });
      }
      throw new HttpError(
        503,
        "storage_unavailable",
        `The store of files and batches does not work; the log gives the reason under request id ${c.get("requestId")}.`,
        { cause: error, headers: { "Retry-After": "5" } },
      );
    }
  };
}

/** Not a 5xx, because retrying cannot help. */
function damaged(cause: DamagedRecordError): HttpError {
  const message = "The record of this id is damaged, so its content is unknown; the log of the service names its key.";
  return new HttpError(404, "record_damaged", message, { parameter: "id", cause });
}

export function storageFull(cause: StoreFullError, options: HttpErrorOptions = {}): HttpError {
  return new HttpError(507, "storage_full", `${cause.message} Delete files first.`, { ...options, cause });
}

/** A page in the format of OpenAI's lists. */
export function toList<Item extends { readonly id: string }>({ items, hasMore }: Page<Item>): object {
  return {
    object: "list",
    data: items,
    first_id: items[0]?.id ?? null,
    last_id: items.at(-1)?.id ?? null,
    has_more: hasMore,
  };
}
