/**
 * A server that speaks the protocol of the Hugging Face Hub for models: revisions, paged lists of files, files in git,
 * and large files by a redirect to a storage server with addresses that are signed. Sources: huggingface_hub 2.4 and
 * https://huggingface.co/docs/hub/api.
 */
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface HubFileContent {
  readonly bytes: Buffer;
  /** Whether git stores a pointer to the file, which is on the storage server. */
  readonly isLarge: boolean;
}

export interface HubRepositoryContent {
  /** Files by path. A new map is a new commit. */
  files: ReadonlyMap<string, HubFileContent>;
  /** Whoever has no accepted token gets 401. */
  isPrivate?: boolean;
  /** Lists are public, files need an accepted token. */
  isGated?: boolean;
  /** The repository was renamed: the hub redirects to this name. */
  movedTo?: string;
}

/** A request as it arrived, or a change to its answer. */
export interface HubRequest {
  readonly server: "hub" | "storage";
  readonly method: string;
  /** Without the query. */
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
}

export interface Disturbance {
  /** Answers with this status instead. */
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Breaks the connection after half of the body. */
  readonly cut?: boolean;
  /** Replaces the bytes of the body; the headers still describe the right ones. */
  readonly bytes?: (body: Buffer) => Buffer;
  /** Replaces a parsed JSON answer. */
  readonly json?: (body: never) => unknown;
}

export interface HubServer {
  readonly endpoint: string;
  readonly storageEndpoint: string;
  readonly repositories: Map<string, HubRepositoryContent>;
  readonly requests: HubRequest[];
  /** Accepted as `Authorization: Bearer`. */
  readonly tokens: Set<string>;
  /** Entries of a page of a list; the hub has 1000. */
  pageSize: number;
  disturb: ((request: HubRequest) => Promise<Disturbance | void> | Disturbance | void) | null;
  stop(): Promise<void>;
}

export const gitHash = (bytes: Buffer): string =>
  createHash("sha1").update(`blob ${bytes.byteLength}\0`).update(bytes).digest("hex");

const hashes = new WeakMap<Buffer, string>();

export function sha256(bytes: Buffer): string {
  const known = hashes.get(bytes) ?? createHash("sha256").update(bytes).digest("hex");
  hashes.set(bytes, known);
  return known;
}

/** The commit is derived from the files, so that equal content has an equal commit. */
export function commitOf({ files }: HubRepositoryContent): string {
  const digest = createHash("sha1");
  for (const [path, { bytes }] of [...files].sort(([first], [second]) => (first < second ? -1 : 1)))
    digest.update(`${path}\0${gitHash(bytes)}\n`);
  return digest.digest("hex");
}

export async function startHubServer(): Promise<HubServer> {
  const repositories = new Map<string, HubRepositoryContent>();
  const requests: HubRequest[] = [];
  const tokens = new Set<string>();
  /** Content of earlier commits, which stays available. */
  const commits = new Map<string, ReadonlyMap<string, HubFileContent>>();

  const handle =
    (name: "hub" | "storage", answer: (request: Answering) => void) =>
    async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
      const url = new URL(request.url ?? "/", "http://server");
      const seen = { server: name, method: request.method ?? "", path: url.pathname, headers: request.headers };
      requests.push(seen);
      const disturbance = (await hub.disturb?.(seen)) ?? {};
      answer({ url, request, respond: (answered) => send(request, response, answered, disturbance) });
    };

  const storage = await listen(
    handle("storage", ({ url, request, respond }) => {
      // A signed address and a token at once are refused by S3.
      if (request.headers.authorization !== undefined) return respond({ status: 400 });
      const content = [...commits.values()]
        .flatMap((files) => Array.from(files.values()))
        .find(({ bytes }) => `/${sha256(bytes)}` === url.pathname);
      if (content === undefined) return respond({ status: 404 });
      if (url.searchParams.get("Signature") !== "valid") return respond({ status: 403 });
      respond({ status: 200, body: content.bytes, headers: { etag: '"a-hash-of-its-own"' } });
    }),
  );

  const server = await listen(
    handle("hub", ({ url, request, respond }) => {
      const fail = (status: number, code: string, message: string): void =>
        respond({ status, headers: { "x-error-code": code, "x-error-message": message } });
      const match =
        /^\/(?:api\/models\/(?<listed>[^/]+\/[^/]+)\/(?<kind>revision|tree)|(?<named>[^/]+\/[^/]+)\/resolve)\/(?<revision>[^/]+)(?:\/(?<path>.+))?$/.exec(
          url.pathname,
        )?.groups;
      if (match === undefined) return respond({ status: 404 });
      const repository = match.listed ?? match.named ?? "";
      const content = repositories.get(repository);
      const token = request.headers.authorization?.replace("Bearer ", "");
      if (token !== undefined && !tokens.has(token)) {
        return fail(401, "", "Invalid credentials in Authorization header");
      }
      if (content === undefined || (content.isPrivate === true && token === undefined)) {
        return token === undefined
          ? respond({ status: 401, headers: { "x-error-message": "Invalid username or password." } })
          : fail(404, "RepoNotFound", "Repository not found");
      }
      if (content.movedTo !== undefined) {
        return respond({ status: 307, headers: { location: url.pathname.replace(repository, content.movedTo) } });
      }
      const commit = commitOf(content);
      commits.set(commit, content.files);
      const revision = decodeURIComponent(match.revision ?? "");
      const wantedCommit = ["main", "refs/pr/1"].includes(revision) ? commit : revision;
      const files = commits.get(wantedCommit);
      if (files === undefined) return fail(404, "RevisionNotFound", `Invalid rev id: ${revision}`);
      if (match.kind === "revision") return respond({ json: { id: repository, sha: wantedCommit, siblings: [] } });
      if (match.kind === "tree") {
        const folder = match.path === undefined ? "" : `${match.path}/`;
        const isRecursive = url.searchParams.get("recursive")?.toLowerCase() === "true";
        const entries = listEntries(files, folder, isRecursive);
        if (entries.length === 0) return fail(404, "EntryNotFound", `${folder} does not exist`);
        const start = Number(url.searchParams.get("cursor") ?? 0);
        const end = start + hub.pageSize;
        url.searchParams.set("cursor", String(end));
        const next = `<${hub.endpoint}${url.pathname}${url.search}>; rel="next"`;
        return respond({ json: entries.slice(start, end), headers: end < entries.length ? { link: next } : {} });
      }
      if (content.isGated === true && token === undefined) {
        return fail(401, "GatedRepo", "Access to model is restricted.");
      }
      if (content.isGated === true && token === "without-access") {
        return fail(403, "GatedRepo", "Access to model is restricted.");
      }
      const file = files.get(decodeURIComponent(match.path ?? ""));
      if (file === undefined) return fail(404, "EntryNotFound", "Entry not found");
      const headers = { "x-repo-commit": wantedCommit, "accept-ranges": "bytes" };
      if (!file.isLarge) {
        return respond({ body: file.bytes, headers: { ...headers, etag: `"${gitHash(file.bytes)}"` } });
      }
      respond({
        status: 302,
        headers: {
          ...headers,
          location: `${hub.storageEndpoint}/${sha256(file.bytes)}?Signature=valid`,
          "x-linked-size": String(file.bytes.byteLength),
          "x-linked-etag": `"${sha256(file.bytes)}"`,
        },
      });
    }),
  );

  const hub: HubServer = {
    endpoint: endpointOf(server),
    storageEndpoint: endpointOf(storage),
    repositories,
    requests,
    tokens,
    pageSize: 1000,
    disturb: null,
    async stop() {
      for (const each of [server, storage]) {
        each.closeAllConnections();
        each.close();
        await once(each, "close");
      }
    },
  };
  return hub;
}

interface Answered {
  readonly status?: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Buffer;
  readonly json?: unknown;
}

interface Answering {
  readonly url: URL;
  readonly request: IncomingMessage;
  readonly respond: (answered: Answered) => void;
}

function send(
  { method, headers: { range } }: IncomingMessage,
  response: ServerResponse,
  { status = 200, headers = {}, body = Buffer.alloc(0), json }: Answered,
  disturbance: Disturbance,
): void {
  if (disturbance.status !== undefined) {
    return void response.writeHead(disturbance.status, { ...disturbance.headers }).end();
  }
  let bytes = body;
  if (json !== undefined) {
    bytes = Buffer.from(JSON.stringify(disturbance.json === undefined ? json : disturbance.json(json as never)));
  }
  const match = json === undefined && status === 200 ? /^bytes=(\d+)-(\d*)$/.exec(range ?? "") : null;
  const total = bytes.byteLength;
  let contentRange: Record<string, string> = {};
  if (match !== null) {
    const start = Number(match[1]);
    const end = match[2] === "" ? total : Math.min(Number(match[2]) + 1, total);
    if (start >= total) return void response.writeHead(416, { "content-range": `bytes */${total}` }).end();
    bytes = bytes.subarray(start, end);
    contentRange = { "content-range": `bytes ${start}-${end - 1}/${total}` };
  }
  const contentLength = { "content-length": String(bytes.byteLength) };
  response.writeHead(match === null ? status : 206, {
    ...contentLength,
    ...contentRange,
    ...headers,
    ...disturbance.headers,
  });
  if (method === "HEAD") return void response.end();
  const sent = disturbance.bytes?.(bytes) ?? bytes;
  if (disturbance.cut !== true) return void response.end(sent);
  response.write(sent.subarray(0, sent.byteLength / 2), () => response.destroy());
}

function listEntries(
  files: ReadonlyMap<string, HubFileContent>,
  folder: string,
  isRecursive: boolean,
): readonly object[] {
  const folders = new Set<string>();
  const entries: object[] = [];
  for (const [path, { bytes, isLarge }] of files) {
    if (!path.startsWith(folder)) continue;
    const below = path.slice(folder.length);
    if (below.includes("/") && !isRecursive) {
      folders.add(folder + below.split("/")[0]!);
      continue;
    }
    const pointer = Buffer.from(`version https://git-lfs.github.com/spec/v1\noid sha256:${sha256(bytes)}\n`);
    entries.push({
      type: "file",
      path,
      size: bytes.byteLength,
      oid: gitHash(isLarge ? pointer : bytes),
      ...(isLarge && { lfs: { oid: sha256(bytes), size: bytes.byteLength, pointerSize: pointer.byteLength } }),
    });
  }
  return [...Array.from(folders, (path) => ({ type: "directory", path, oid: "0".repeat(40), size: 0 })), ...entries];
}

async function listen(handle: (request: IncomingMessage, response: ServerResponse) => Promise<void>): Promise<Server> {
  const server = createServer((request, response) => void handle(request, response).catch(() => response.destroy()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

function endpointOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
