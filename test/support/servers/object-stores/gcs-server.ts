/** Google Cloud Storage's JSON API as far as checkpoints need it: https://cloud.google.com/storage/docs/json_api/v1. */
import { startStoreServer } from "./store-server.ts";
import type { Answer, Page, StoreServer } from "./store-server.ts";

export interface GcsServer extends StoreServer {
  /** Null accepts every caller. Callers without it get 401, with another one 403. */
  readonly setToken: (token: string | null) => void;
  /** CRC-32C by object, for those that have no MD5. */
  readonly crc32c: Map<string, string>;
}

export async function startGcsServer(): Promise<GcsServer> {
  let token: string | null = null;
  const crc32c = new Map<string, string>();
  const server = await startStoreServer(() => ({
    fail: gcsError,
    read(request, url) {
      const { authorization } = request.headers;
      if (token !== null && authorization !== `Bearer ${token}`) {
        const answer =
          authorization === undefined
            ? gcsError(401, "Anonymous caller does not have storage.objects.list access to the bucket.")
            : gcsError(403, "The account does not have storage.objects.list access to the bucket.");
        return { kind: "refused", answer };
      }
      const match = /^\/storage\/v1\/b\/([^/]+)\/o(?:\/([^/]+))?$/.exec(url.pathname);
      if (match === null) return { kind: "refused", answer: gcsError(404, "Not Found") };
      const [bucket, key] = match.slice(1).map((part) => (part === undefined ? part : decodeURIComponent(part)));
      const { searchParams } = url;
      if (key !== undefined) {
        const isMedia = searchParams.get("alt") === "media";
        if (!isMedia) return { kind: "refused", answer: { status: 200, body: JSON.stringify({ name: key }) } };
        return { kind: "object", bucket: bucket!, key, version: searchParams.get("ifGenerationMatch") };
      }
      const listing = {
        bucket: bucket!,
        prefix: searchParams.get("prefix") ?? "",
        delimiter: searchParams.get("delimiter") ?? "",
        start: Number(searchParams.get("pageToken") ?? 0),
      };
      return { kind: "list", listing, answer: (page) => listAnswer(page, crc32c) };
    },
  }));
  const setToken = (value: string | null): void => void (token = value);
  return Object.assign(server, { crc32c, setToken });
}

function listAnswer({ objects, next }: Page, crc32c: ReadonlyMap<string, string>): Answer {
  const items = objects.map(({ key, object: { bytes, version, md5, contentEncoding, listedSize } }) => ({
    name: key,
    size: String(listedSize ?? bytes.length),
    generation: version,
    ...(md5 !== null && { md5Hash: md5 }),
    ...(crc32c.has(key) && { crc32c: crc32c.get(key) }),
    ...(contentEncoding !== null && { contentEncoding }),
  }));
  // Empty lists are left out.
  const body = { ...(items.length > 0 && { items }), ...(next !== null && { nextPageToken: String(next) }) };
  return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

function gcsError(status: number, message: string): Answer {
  const error = { code: status, message, errors: [{ message, domain: "global", reason: "other" }] };
  return { status, headers: { "content-type": "application/json" }, body: JSON.stringify({ error }) };
}
