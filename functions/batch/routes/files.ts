/**
 * OpenAI's Files API, for batches and for the pictures and documents of prompts; its answers are in Anthropic's form for
 * Anthropic's clients. https://platform.openai.com/docs/api-reference/files
 */
import { extname } from "node:path";
import { Readable } from "node:stream";
import type { Context, Handler } from "hono";
import { z } from "zod";

import type { AppDependencies } from "../../app-dependencies.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { isFromAnthropicClient } from "../../http/anthropic-error.ts";
import { HttpError } from "../../http/errors.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { Batches } from "../batches.ts";
import { StoreFullError } from "../store-quota.ts";
import type { Reservation } from "../store-quota.ts";
import { promptPurposes, purposes } from "../stored-files.ts";
import type { FileObject, FilePurpose, StoredFiles } from "../stored-files.ts";
import { anthropicListQuery, anthropicUploadFields, toAnthropicFile, toAnthropicList } from "./anthropic-files.ts";
import { batchRoute, storageFull, toList } from "./batch-route.ts";
import { expiresAfter } from "./expires-after.ts";
import { pageQuery } from "./page-query.ts";

const listQuery = pageQuery("file").extend({
  purpose: z
    .enum(purposes, `must be one of ${purposes.join(", ")}`)
    .nullable()
    .default(null),
});

const uploadFields = z.object({
  purpose: z.enum(["batch", ...promptPurposes], `must be batch, or for prompts one of ${promptPurposes.join(", ")}`),
  expires_after: expiresAfter(z.coerce.number()).optional(),
});

export function uploadFileRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, batches) => {
    const readFields = isFromAnthropicClient(c) ? anthropicFields : openaiFields;
    const file = await upload(c.req.raw, c.get("tenant"), batches, readFields);
    Object.assign(c.get("logFields"), { id: file.id, bytes: file.bytes });
    return c.json(shownTo(c, file));
  });
}

interface UploadFields {
  readonly purpose: FilePurpose;
  /** Null without a lifetime of its own. */
  readonly expiresAfterSeconds: number | null;
}

/** Throws HttpError 400 for an invalid field. */
type ReadUploadFields = (fields: ReadonlyMap<string, string>) => UploadFields;

const openaiFields: ReadUploadFields = (fields) => {
  const { purpose, expires_after: lifetime } = parseFields(uploadFields, toObject(fields));
  return { purpose, expiresAfterSeconds: lifetime?.seconds ?? null };
};

/** Their files have no purpose, and no batches. */
const anthropicFields: ReadUploadFields = (fields) => {
  const { expires_in_seconds: seconds = null } = parseFields(anthropicUploadFields, Object.fromEntries(fields));
  return { purpose: "user_data", expiresAfterSeconds: seconds };
};

async function upload(
  request: Request,
  tenant: string,
  { files, limits, quota }: Batches,
  readFields: ReadUploadFields,
): Promise<FileObject> {
  const { FORM_ROOM_BYTES, receiveUpload } = await import("../../http/multipart-upload.ts");
  const announced = Number(request.headers.get("content-length") ?? 0);
  let reservation = null as Reservation | null;
  const id = files.newId();
  try {
    const { file, fields } = await receiveUpload(request, {
      fileField: "file",
      maxFileBytes: limits.maxFileBytes,
      limitName: "BATCH_MAX_FILE_BYTES",
      // Only here is the file known to be one that the store may hold.
      async take(chunks) {
        reservation = await quota.reserve(Math.max(0, announced - FORM_ROOM_BYTES));
        return files.receive(id, reserving(chunks, reservation));
      },
      giveUp: () => files.discard(id),
    });
    if (file === null) {
      throw new HttpError(400, "missing_file", "file must be a file in the form.", { parameter: "file" });
    }
    try {
      const given = readFields(fields);
      await reservation?.settle();
      const { taken: numBytes, filename } = file;
      return await files.publish(tenant, { id, numBytes, filename, ...given });
    } catch (error) {
      await files.withdraw(tenant, id);
      throw error;
    }
  } catch (error) {
    // The rest of the body is not read, so the connection cannot be reused.
    const options = { parameter: "file", headers: { Connection: "close" } };
    throw error instanceof StoreFullError ? storageFull(error, options) : error;
  } finally {
    reservation?.release();
  }
}

/** `expires_after[seconds]` is the field `seconds` of `expires_after`. */
function toObject(fields: Iterable<readonly [name: string, value: string]>): object {
  const values = new Map(fields);
  const parts = [...values].flatMap(([name, value]) => {
    const part = /^expires_after\[(\w+)\]$/.exec(name)?.[1];
    return part === undefined ? [] : [[part, value] as const];
  });
  const lifetime = parts.length > 0 ? Object.fromEntries(parts) : values.get("expires_after");
  return { purpose: values.get("purpose"), expires_after: lifetime };
}

async function* reserving(chunks: AsyncIterable<Uint8Array>, reservation: Reservation): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    await reservation.grow(chunk.byteLength);
    yield chunk;
  }
}

export function listFilesRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    if (isFromAnthropicClient(c)) {
      const tenant = c.get("tenant");
      const { ids, ...page } = parseFields(anthropicListQuery, { ...c.req.query(), ids: c.req.queries("ids[]") });
      if (ids === null) return c.json(toAnthropicList(await files.list(tenant, page, null)));
      const found = await Promise.all(ids.map((id) => files.find(tenant, id)));
      return c.json(toAnthropicList({ items: found.filter((file) => file !== null), hasMore: false }));
    }
    const { purpose, ...page } = parseFields(listQuery, c.req.query());
    return c.json(toList(await files.list(c.get("tenant"), page, purpose)));
  });
}

export function fileRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    const id = c.req.param("file") ?? "";
    return c.json(
      shownTo(c, (await files.find(c.get("tenant"), id)) ?? (await unknownFile(c.get("tenant"), id, files))),
    );
  });
}

export function fileContentRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    const id = c.req.param("file") ?? "";
    const headersOf = ({ bytes, filename }: FileObject) => ({
      "Content-Type": "application/octet-stream",
      "Content-Length": String(bytes),
      "Content-Disposition": `attachment; filename="${id}${extensionOf(filename)}"`,
    });
    if (c.req.method === "HEAD") {
      // Nothing would read a body, and so close its file.
      const file = (await files.find(c.get("tenant"), id)) ?? (await unknownFile(c.get("tenant"), id, files));
      return c.body(null, 200, headersOf(file));
    }
    const tenant = c.get("tenant");
    const { file, chunks } = (await files.read(tenant, id)) ?? (await unknownFile(tenant, id, files));
    return c.body(Readable.toWeb(Readable.from(chunks)) as ReadableStream, 200, headersOf(file));
  });
}

export function deleteFileRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    const id = c.req.param("file") ?? "";
    if (!(await files.delete(c.get("tenant"), id))) await unknownFile(c.get("tenant"), id, files);
    return c.json(isFromAnthropicClient(c) ? { id, type: "file_deleted" } : { id, object: "file", deleted: true });
  });
}

function shownTo(c: Context, file: FileObject): object {
  return isFromAnthropicClient(c) ? toAnthropicFile(file) : file;
}

/** Names of uploads may have any characters, which a header may not. */
function extensionOf(filename: string): string {
  return /^\.[a-z\d]{1,16}$/i.exec(extname(filename))?.[0] ?? "";
}

async function unknownFile(tenant: string, id: string, files: StoredFiles): Promise<never> {
  if (await files.hasExpired(tenant, id)) {
    const message = `The file ${id} has expired, because its expires_after or BATCH_RETENTION_SECONDS is over.`;
    throw new HttpError(404, "file_expired", message, { parameter: "id" });
  }
  const message = `There is no file ${id.slice(0, 100)}. It may have been deleted, or have expired.`;
  throw new HttpError(404, "not_found", message, { parameter: "id" });
}
