/** Files in the form of Anthropic's Files API. https://platform.claude.com/docs/en/build-with-claude/files */
import { getMimeType } from "hono/utils/mime";
import { z } from "zod";

import { boundedList } from "../../generation/schemas/wire-types.ts";
import { isId } from "../ids.ts";
import type { FileObject } from "../stored-files.ts";
import type { Page, PageOptions } from "../tenant-records.ts";
import { isLifetime, lifetimeRule } from "./expires-after.ts";

const MAX_LIMIT = 1000;
const DEFAULT_LIMIT = 20;
const MAX_IDS = 100;

const fileId = z.string().refine((id) => isId("file", id), "must be the id of a file");
const limitRule = `must be a whole number from 1 to ${MAX_LIMIT}`;

const query = z.object({
  ids: boundedList(z.string(), MAX_IDS, "must be a list of ids").optional(),
  limit: z.coerce.number(limitRule).int(limitRule).min(1, limitRule).max(MAX_LIMIT, limitRule).default(DEFAULT_LIMIT),
  /** `next_page` of the page before. */
  page: fileId.optional(),
  /** Of older clients: the last id of the page before. */
  after_id: fileId.optional(),
});

export const anthropicListQuery = query.transform(
  ({ ids, limit, page, after_id: afterId }): PageOptions & { readonly ids: readonly string[] | null } => ({
    ids: ids === undefined ? null : [...new Set(ids)],
    limit,
    after: page ?? afterId ?? null,
    order: "desc",
  }),
);

export const anthropicUploadFields = z.object({
  expires_in_seconds: z.coerce.number(lifetimeRule).refine(isLifetime, lifetimeRule).optional(),
});

export function toAnthropicFile({ id, bytes, created_at, filename, expires_at: expiresAt }: FileObject): object {
  return {
    type: "file",
    id,
    filename,
    // Only the name is stored.
    mime_type: getMimeType(filename) ?? "application/octet-stream",
    size_bytes: bytes,
    created_at: toTime(created_at),
    expires_at: expiresAt === undefined ? null : toTime(expiresAt),
    downloadable: true,
  };
}

export function toAnthropicList({ items, hasMore }: Page<FileObject>): object {
  const last = items.at(-1)?.id ?? null;
  return {
    data: items.map(toAnthropicFile),
    first_id: items[0]?.id ?? null,
    last_id: last,
    has_more: hasMore,
    next_page: hasMore ? last : null,
  };
}

function toTime(seconds: number): string {
  return new Date(seconds * 1000).toISOString();
}
