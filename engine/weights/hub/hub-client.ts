/**
 * The HTTP calls of a download from a hub: https://huggingface.co/docs/hub/api and, for files, what huggingface_hub
 * sends. Large files are served by another host, under an address that is signed for a while.
 */
import { z } from "zod";

import type { HubConfig } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import type { HubRepository } from "../../contract/model-reference.ts";
import { ANSWER_TIMEOUT_MS, explainFailure, readText } from "../http-answers.ts";
import { TransientDownloadError, withRetries } from "../parallel-ranges.ts";
import type { ReadRange, RemoteFile } from "../parallel-ranges.ts";
import type { Listing } from "../remote-checkpoint.ts";
import { explainAnswer } from "./hub-errors.ts";

export interface HubFile extends RemoteFile {
  /** Path in the repository. */
  readonly path: string;
  /** Name of its blob in the cache: a SHA-256, or the git hash of a file that git itself stores. */
  readonly eTag: string;
  readonly hash: "sha256" | "git";
}

/** A prefix with more files is not a checkpoint and is not listed to its end. */
const MAX_LISTED_FILES = 10_000;
const MAX_REDIRECTS = 5;

const commit = z.string().regex(/^[0-9a-f]{40}$/);
const byteLength = z.int().nonnegative();
const revisionAnswer = z.object({ sha: commit });
const treeAnswer = z.array(
  z.object({
    type: z.string(),
    path: z.string(),
    size: byteLength,
    oid: commit,
    lfs: z.object({ oid: z.string().regex(/^[0-9a-f]{64}$/), size: byteLength }).optional(),
  }),
);

export class HubClient {
  readonly #endpoint: URL;
  readonly #token: string | null;
  readonly #repository: string;
  readonly #revision: string;
  readonly #signal: AbortSignal;

  constructor({ endpoint, token }: HubConfig, { repository, revision }: HubRepository, signal: AbortSignal) {
    this.#endpoint = new URL(endpoint.endsWith("/") ? endpoint : `${endpoint}/`);
    this.#token = token;
    this.#repository = repository;
    this.#revision = revision;
    this.#signal = signal;
  }

  /** The commit of the revision. Throws EngineError, or TransientDownloadError if the hub cannot be reached. */
  async resolveRevision(): Promise<string> {
    const url = this.#url(`api/models/${this.#repository}/revision/${encodeURIComponent(this.#revision)}`);
    const { body } = await this.#getJson(url, revisionAnswer);
    return body.sha;
  }

  /** Empty if the folder does not exist. Throws like `resolveRevision`. */
  async list(commitHash: string, folder: string): Promise<Listing<HubFile>> {
    const prefix = folder === "" ? "" : `${folder}/`;
    const files: HubFile[] = [];
    const folders = new Set<string>();
    let url: URL | null = this.#url(`api/models/${this.#repository}/tree/${commitHash}${folder && `/${folder}`}`);
    while (url !== null) {
      const page: { body: z.output<typeof treeAnswer>; next: URL | null } = await this.#getJson(url, treeAnswer).catch(
        absentFolder,
      );
      for (const { type, path, size, oid, lfs } of page.body) {
        const name = path.slice(prefix.length);
        // A name with folders could lead out of the checkpoint.
        if (!path.startsWith(prefix) || /[/\\]/.test(name)) continue;
        if (type === "directory") folders.add(name);
        if (type !== "file") continue;
        files.push(
          lfs === undefined
            ? { path, name, byteLength: size, eTag: oid, hash: "git" }
            : { path, name, byteLength: lfs.size, eTag: lfs.oid, hash: "sha256" },
        );
      }
      if (files.length > MAX_LISTED_FILES) {
        throw new EngineError(
          "invalid_configuration",
          `${this.#repository} contains ${files.length} files or more; a checkpoint has at most ${MAX_LISTED_FILES}.`,
        );
      }
      url = page.next;
    }
    return { files, folders };
  }

  /** Reads ranges of one file. Its storage address is requested once and again when it has expired. */
  createReader(commitHash: string, file: HubFile): ReadRange {
    const fileUrl = this.#url(`${this.#repository}/resolve/${commitHash}/${encodeURI(file.path)}`);
    let address: Promise<URL> | null = null;
    const readRange = this.#readRange.bind(this);
    const locate = (signal: AbortSignal): Promise<URL> =>
      this.#locate(fileUrl, file, signal).catch((error: unknown) => {
        address = null;
        throw error;
      });
    return async function* read(start, end, signal) {
      // A file that git stores comes from the hub itself.
      const url = file.hash === "git" ? fileUrl : await (address ??= locate(signal));
      try {
        yield* readRange(url, file, start, end, signal);
      } catch (error) {
        if (error instanceof TransientDownloadError) address = null;
        throw error;
      }
    };
  }

  #url(path: string): URL {
    return new URL(path, this.#endpoint);
  }

  /** Where the bytes of a large file are, after checking what the hub says of it against its listing. */
  async #locate(url: URL, file: HubFile, signal: AbortSignal): Promise<URL> {
    const { answer, location } = await this.#send(url, { method: "HEAD", signal });
    const { headers } = answer;
    await answer.body?.cancel();
    const size = headers.get("x-linked-size") ?? headers.get("content-length");
    if (size !== null && (headers.has("x-linked-size") || answer.ok)) requireSize(file, Number(size));
    const eTag = headers.get("x-linked-etag");
    if (eTag !== null && normalizeETag(eTag) !== file.eTag) {
      throw new EngineError(
        "invalid_checkpoint",
        `The hub lists ${file.path} with the hash ${file.eTag} and serves it with ${normalizeETag(eTag)}.`,
      );
    }
    return location;
  }

  async *#readRange(
    url: URL,
    file: HubFile,
    start: number,
    end: number,
    signal: AbortSignal,
  ): AsyncGenerator<Uint8Array> {
    const isWhole = start === 0 && end === file.byteLength;
    const headers = isWhole ? {} : { range: `bytes=${start}-${end - 1}` };
    const { answer } = await this.#send(url, { headers, signal });
    try {
      if (answer.body === null) throw new TransientDownloadError(`${file.path} was sent without a body.`);
      const range = answer.headers.get("content-range");
      const length = answer.headers.get("content-length");
      if (answer.status === 206) requireSize(file, Number(/\/(\d+)$/.exec(range ?? "")?.[1] ?? Number.NaN));
      else if (length !== null) requireSize(file, Number(length));
      if (answer.status === 206 && range?.startsWith(`bytes ${start}-${end - 1}/`) !== true) {
        throw new TransientDownloadError(
          `${file.path}: the server sent ${range} instead of the range ${start}-${end - 1}.`,
        );
      }
      if (answer.status !== 206 && !isWhole) {
        throw new EngineError("invalid_configuration", `${file.path}: the server does not support ranges of a file.`);
      }
      yield* answer.body;
    } catch (cause) {
      throw explainFailure(cause, `${file.path} cannot be read`, signal);
    } finally {
      await answer.body?.cancel().catch(() => undefined);
    }
  }

  async #getJson<Schema extends z.ZodType>(
    url: URL,
    schema: Schema,
  ): Promise<{ readonly body: z.output<Schema>; readonly next: URL | null }> {
    return withRetries(this.#signal, async () => {
      const signal = AbortSignal.any([this.#signal, AbortSignal.timeout(ANSWER_TIMEOUT_MS)]);
      const { answer } = await this.#send(url, { signal });
      const text = await readText(answer, signal, this.#endpoint.origin);
      const next = /<([^>]+)>\s*;[^,]*rel="?next"?/.exec(answer.headers.get("link") ?? "")?.[1];
      return { body: parseAnswer(text, schema, url), next: next === undefined ? null : new URL(next, url) };
    });
  }

  /**
   * Follows redirects by hand: the token goes to the hub only. `location` is the address of the answer; of a HEAD
   * request, the first address on another host, and the answer is the redirect, which describes the file.
   */
  async #send(
    url: URL,
    { method = "GET", headers = {}, signal }: SendOptions,
  ): Promise<{ readonly answer: Response; readonly location: URL }> {
    let location = url;
    for (let numRedirects = 0; numRedirects <= MAX_REDIRECTS; numRedirects++) {
      const isOnHub = location.origin === this.#endpoint.origin;
      const authorization = isOnHub && this.#token !== null ? { authorization: `Bearer ${this.#token}` } : {};
      const answer = await fetch(location, {
        method,
        redirect: "manual",
        // A compressed file has another length.
        headers: { ...headers, ...authorization, "accept-encoding": "identity", "user-agent": "fovea" },
        signal,
      }).catch((cause: unknown) => {
        throw explainFailure(cause, `${location.origin} cannot be reached`, signal);
      });
      const target = answer.headers.get("location");
      if (answer.status < 300 || answer.status >= 400 || target === null) {
        if (answer.ok) return { answer, location };
        await answer.body?.cancel();
        const asked = { repository: this.#repository, revision: this.#revision, endpoint: this.#endpoint };
        throw explainAnswer(answer, { ...asked, url: location, isOnHub, hasToken: this.#token !== null });
      }
      location = new URL(target, location);
      if (!/^https?:$/.test(location.protocol)) break;
      if (method === "HEAD" && location.origin !== this.#endpoint.origin) return { answer, location };
      await answer.body?.cancel();
    }
    throw new EngineError("invalid_configuration", `${url.href} leads to more than ${MAX_REDIRECTS} redirects.`);
  }
}

/** Stands for the list of a folder that does not exist. */
function absentFolder(error: unknown): { readonly body: never[]; readonly next: null } {
  if (error instanceof EngineError && error.code === "invalid_checkpoint") return { body: [], next: null };
  throw error;
}

interface SendOptions {
  readonly method?: "GET" | "HEAD";
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
}

/** Some proxies mark entity tags as weak. */
function normalizeETag(eTag: string): string {
  return eTag.replace(/^W\//, "").replaceAll('"', "");
}

function requireSize({ path, byteLength: listed }: HubFile, served: number): void {
  if (served === listed) return;
  throw new EngineError(
    "invalid_checkpoint",
    `The hub lists ${path} with ${listed} bytes and serves ${Number.isNaN(served) ? "an unknown number of" : served} bytes.`,
  );
}

function parseAnswer<Schema extends z.ZodType>(text: string, schema: Schema, url: URL): z.output<Schema> {
  const isNoHub = (cause: unknown): EngineError =>
    new EngineError(
      "invalid_configuration",
      `${url.origin}${url.pathname} does not answer like a hub; check its address.`,
      { cause, setting: "hubEndpoint" },
    );
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw isNoHub(cause);
  }
  const parsed = schema.safeParse(value);
  if (!parsed.success) throw isNoHub(parsed.error);
  return parsed.data;
}
