/** OpenAI's Files API, for the files of batches. https://platform.openai.com/docs/api-reference/files */
import { Readable } from "node:stream";
import type { Handler } from "hono";
import { z } from "zod";

import type { AppDependencies } from "../../app-dependencies.ts";
import { parseFields } from "../../generation/schemas/parse-fields.ts";
import { HttpError } from "../../http/errors.ts";
import type { AppEnvironment } from "../../http/request-trace.ts";
import type { Batches } from "../batches.ts";
import { StoreFullError } from "../store-quota.ts";
import type { Reservation } from "../store-quota.ts";
import type { FileObject, StoredFiles } from "../stored-files.ts";
import { batchRoute, storageFull, toList } from "./batch-route.ts";
import { expiresAfter } from "./expires-after.ts";
import { pageQuery } from "./page-query.ts";

const listQuery = pageQuery("file").extend({
  purpose: z.enum(["batch", "batch_output"], "must be batch or batch_output").nullable().default(null),
});

const uploadFields = z.object({
  purpose: z.literal("batch", "must be batch: only files for batches are accepted"),
  expires_after: expiresAfter(z.coerce.number()).optional(),
});

export function uploadFileRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, batches) => {
    const file = await upload(c.req.raw, c.get("tenant"), batches);
    Object.assign(c.get("logFields"), { id: file.id, bytes: file.bytes });
    return c.json(file);
  });
}

async function upload(request: Request, tenant: string, { files, limits, quota }: Batches): Promise<FileObject> {
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
      const { purpose, expires_after: lifetime } = parseFields(uploadFields, toObject(fields));
      await reservation?.settle();
      const { taken: numBytes, filename } = file;
      const expiresAfterSeconds = lifetime?.seconds ?? null;
      return await files.publish(tenant, { id, numBytes, filename, purpose, expiresAfterSeconds });
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
    const { purpose, ...page } = parseFields(listQuery, c.req.query());
    return c.json(toList(await files.list(c.get("tenant"), page, purpose)));
  });
}

export function fileRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    const id = c.req.param("file") ?? "";
    return c.json((await files.find(c.get("tenant"), id)) ?? (await unknownFile(c.get("tenant"), id, files)));
  });
}

export function fileContentRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    const id = c.req.param("file") ?? "";
    const headersOf = (numBytes: number) => ({
      "Content-Type": "application/octet-stream",
      "Content-Length": String(numBytes),
      "Content-Disposition": `attachment; filename="${id}.jsonl"`,
    });
    if (c.req.method === "HEAD") {
      // Nothing would read a body, and so close its file.
      const { bytes } = (await files.find(c.get("tenant"), id)) ?? (await unknownFile(c.get("tenant"), id, files));
      return c.body(null, 200, headersOf(bytes));
    }
    const tenant = c.get("tenant");
    const { numBytes, chunks } = (await files.read(tenant, id)) ?? (await unknownFile(tenant, id, files));
    return c.body(Readable.toWeb(Readable.from(chunks)) as ReadableStream, 200, headersOf(numBytes));
  });
}

export function deleteFileRoute(dependencies: AppDependencies): Handler<AppEnvironment> {
  return batchRoute(dependencies, async (c, { files }) => {
    const id = c.req.param("file") ?? "";
    if (!(await files.delete(c.get("tenant"), id))) await unknownFile(c.get("tenant"), id, files);
    return c.json({ id, object: "file", deleted: true });
  });
}

async function unknownFile(tenant: string, id: string, files: StoredFiles): Promise<never> {
  if (await files.hasExpired(tenant, id)) {
    const message = `The file ${id} has expired, because its expires_after or BATCH_RETENTION_SECONDS is over.`;
    throw new HttpError(404, "file_expired", message, { parameter: "id" });
  }
  const message = `There is no file ${id.slice(0, 100)}. It may have been deleted, or have expired.`;
  throw new HttpError(404, "not_found", message, { parameter: "id" });
}
