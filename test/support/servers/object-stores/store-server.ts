/**
 * Shared by the test servers of object stores: objects in memory, ranges, a log, and disturbances. The dialects are
 * those of Google's JSON API and of Azure's REST API; the emulators Azurite 3.37 and gcp-storage-emulator 2026.7 gave
 * the engine the same files and errors.
 */
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface StoredBytes {
  readonly bytes: Buffer;
  readonly version: string;
  /** Listed; null for an object without one. */
  md5: string | null;
  contentEncoding: string | null;
  /** Of the list; null for the number of bytes. */
  listedSize: number | null;
}

export interface Disturbance {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Breaks the connection after half of the body. */
  readonly cut?: boolean;
  /** Replaces the bytes of a range. */
  readonly bytes?: (body: Buffer) => Buffer;
}

export interface Answer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Buffer;
}

export interface StoreServer extends AsyncDisposable {
  readonly url: string;
  /** By `bucket/key`. */
  readonly objects: Map<string, StoredBytes>;
  /** `LIST prefix` or `GET key range`, in the order of arrival. */
  readonly log: string[];
  /** Entries of a page of a list. */
  pageSize: number;
  disturb: ((entry: string) => Promise<Disturbance | void> | Disturbance | void) | null;
  put(bucket: string, key: string, bytes: Buffer | string): StoredBytes;
}

export interface Listing {
  readonly bucket: string;
  readonly prefix: string;
  readonly delimiter: string;
  /** Where the page begins. */
  readonly start: number;
}

export interface Page {
  readonly objects: readonly { readonly key: string; readonly object: StoredBytes }[];
  /** Null at the end. */
  readonly next: number | null;
}

export interface Dialect {
  /** Null if the call is one of a list; its bucket exists. */
  readonly read: (
    request: IncomingMessage,
    url: URL,
  ) =>
    | { readonly kind: "list"; readonly listing: Listing; readonly answer: (page: Page) => Answer }
    | { readonly kind: "object"; readonly bucket: string; readonly key: string; readonly version: string | null }
    | { readonly kind: "refused"; readonly answer: Answer };
  readonly fail: (status: number, code: string) => Answer;
}

const md5Of = (bytes: Buffer): string => createHash("md5").update(bytes).digest("base64");

export async function startStoreServer(
  createDialect: (objects: ReadonlyMap<string, StoredBytes>) => Dialect,
): Promise<StoreServer> {
  const objects = new Map<string, StoredBytes>();
  const log: string[] = [];
  const { read, fail } = createDialect(objects);

  const handle = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const url = new URL(request.url ?? "/", "http://server");
    const call = read(request, url);
    if (call.kind === "refused") return send(response, call.answer, {});
    const range = request.headers.range ?? "";
    const entry = call.kind === "list" ? `LIST ${call.listing.prefix}` : `GET ${call.key} ${range}`;
    log.push(entry);
    const disturbance = (await store.disturb?.(entry)) ?? {};
    if (disturbance.status !== undefined) {
      return send(response, fail(disturbance.status, "Disturbed"), disturbance);
    }
    if (call.kind === "list") {
      const { bucket } = call.listing;
      const isBucket = [...objects.keys()].some((name) => name.startsWith(`${bucket}/`));
      return send(response, isBucket ? call.answer(pageOf(call.listing)) : fail(404, "ContainerNotFound"), disturbance);
    }
    const object = objects.get(`${call.bucket}/${call.key}`);
    if (object === undefined) return send(response, fail(404, "BlobNotFound"), disturbance);
    if (call.version !== null && call.version !== object.version)
      return send(response, fail(412, "ConditionNotMet"), disturbance);
    const [, first = "0", last = ""] = /^bytes=(\d+)-(\d*)$/.exec(range) ?? [];
    const { bytes } = object;
    if (Number(first) >= bytes.length && bytes.length > 0)
      return send(response, fail(416, "InvalidRange"), disturbance);
    const end = last === "" ? bytes.length : Math.min(Number(last) + 1, bytes.length);
    const headers = { "content-range": `bytes ${first}-${end - 1}/${bytes.length}` };
    const body = (disturbance.bytes ?? ((same: Buffer) => same))(bytes.subarray(Number(first), end));
    send(response, { status: range === "" ? 200 : 206, ...(range !== "" && { headers }), body }, disturbance);
  };

  const pageOf = ({ bucket, prefix, delimiter, start }: Listing): Page => {
    const below = [...objects]
      .filter(([name]) => name.startsWith(`${bucket}/${prefix}`))
      .map(([name, object]) => ({ key: name.slice(bucket.length + 1), object }))
      .filter(({ key }) => delimiter === "" || !key.slice(prefix.length).includes(delimiter))
      .sort((first, second) => (first.key < second.key ? -1 : 1));
    const end = start + store.pageSize;
    return { objects: below.slice(start, end), next: end < below.length ? end : null };
  };

  const server = createServer((request, response) => void handle(request, response).catch(() => response.destroy()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const store: StoreServer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    objects,
    log,
    pageSize: 1000,
    disturb: null,
    put(bucket, key, content) {
      const bytes = Buffer.from(content as Buffer);
      const object = { bytes, version: newVersion(), md5: md5Of(bytes), contentEncoding: null, listedSize: null };
      objects.set(`${bucket}/${key}`, object);
      return object;
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
  return store;
}

/** Digits, which both stores could have as a version. */
function newVersion(): string {
  return String(Number.parseInt(randomUUID().slice(0, 8), 16));
}

function send(response: ServerResponse, { status, headers, body = "" }: Answer, disturbance: Disturbance): void {
  response.writeHead(status, { ...headers, ...disturbance.headers, "content-length": Buffer.byteLength(body) });
  if (disturbance.cut !== true) return void response.end(body);
  const half = Buffer.from(body as Buffer).subarray(0, Math.floor(Buffer.byteLength(body) / 2));
  response.write(half, () => response.destroy());
}
