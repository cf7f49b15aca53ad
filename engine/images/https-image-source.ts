/** Images on the web (`https://…`), fetched with restrictions for untrusted references. */
import { lookup as systemLookup } from "node:dns";
import type { LookupFunction } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import type { Agent } from "undici";

import { untilAborted } from "../concurrent-work.ts";
import { EngineError } from "../contract/errors.ts";
import type { EngineErrorOptions } from "../contract/errors.ts";
import { discard, readBounded } from "./bounded-bytes.ts";
import { withoutEncoding } from "./content-encoding.ts";
import { describeReference } from "./describe-reference.ts";
import { createGuardedAgent } from "./guarded-agent.ts";
import { conditionalHeaders, validatorOf } from "./http-validator.ts";
import { fetchAlways } from "./image-source.ts";
import type { ConnectedImageSource, FetchedImage, FetchIfChangedOptions } from "./image-source.ts";
import { createNameLookup } from "./name-lookup.ts";

export interface HttpsImageSourceOptions {
  /** Also fetch `http://`. Default false. */
  readonly allowHttp?: boolean;
  /** Exact host names that images may come from, redirects included. Empty (default) allows all public hosts. */
  readonly allowedDomains?: readonly string[];
  /** `host:port` entries whose addresses may be private. Default none. */
  readonly allowedPrivateHosts?: readonly string[];
  /** Of all hosts together. Default: no limit. */
  readonly maxNumConnections?: number;
  /** Name resolution. Default: the system's for private hosts, and `createNameLookup` for all others. */
  readonly lookup?: LookupFunction;
  /** PEM certificates trusted instead of the public authorities; null (default) trusts the public ones. */
  readonly certificateAuthorities?: string | null;
}

export const MAX_REDIRECTS = 3;
const MAX_ATTEMPTS = 3;
/** Before the second attempt; four times longer before each further one. */
const RETRY_DELAY_MS = 100;
/** A silent host is retried after this time, within the caller's time limit. */
const SILENCE_TIMEOUT_MS = 5_000;

const redirectStatuses: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);
/** Statuses that may change on a retry: timeout, too many requests; and every 5xx. */
const transientStatuses: ReadonlySet<number> = new Set([408, 429]);

type Outcome =
  | FetchedImage
  | { readonly kind: "redirect"; readonly location: string }
  | { readonly kind: "failed"; readonly reason: string; readonly isTransient: boolean; readonly cause?: unknown };

/**
 * Fetches over connections that reach only public addresses (see `createGuardedAgent`). Every redirect is checked like
 * the first address and never leads from https to http. Connection errors, silence, 5xx, 408 and 429 are tried three
 * times. The caller's signal limits the total time. An image's validator contains the final address after redirects,
 * and is sent only to that address.
 */
export function createHttpsImageSource(options: HttpsImageSourceOptions = {}): ConnectedImageSource {
  const schemes = options.allowHttp === true ? ["https", "http"] : ["https"];
  const allowedDomains = new Set(options.allowedDomains?.map((domain) => domain.toLowerCase()));
  let agent: Promise<Agent> | null = null;

  async function request(url: URL, fetchOptions: FetchIfChangedOptions): Promise<Outcome> {
    agent ??= createGuardedAgent({
      allowedPrivateHosts: new Set(options.allowedPrivateHosts?.map((host) => host.toLowerCase())),
      lookup: options.lookup ?? systemLookup,
      publicLookup: options.lookup ?? createNameLookup(),
      certificateAuthorities: options.certificateAuthorities ?? null,
      maxNumConnections: options.maxNumConnections,
    });
    const connections = await agent;
    const condition = conditionalHeaders(fetchOptions.validator, url);
    try {
      const answering = connections.request({
        origin: url.origin,
        path: url.pathname + url.search,
        method: "GET",
        headers: { accept: "image/*,*/*;q=0.5", "accept-encoding": "identity", "user-agent": "fovea", ...condition },
        signal: fetchOptions.signal,
        headersTimeout: SILENCE_TIMEOUT_MS,
        bodyTimeout: SILENCE_TIMEOUT_MS,
      });
      // undici itself ends a request without a connection only when its name is resolved and its connection opened, or
      // has failed; it sends nothing then.
      const { statusCode, headers, body } = await untilAborted(answering, fetchOptions.signal);
      if (statusCode === 200) {
        const announcedBytes = typeof headers["content-length"] === "string" ? Number(headers["content-length"]) : null;
        const { maxImageBytes, onBytes } = fetchOptions;
        const sent = await readBounded(body, { announcedBytes, maxImageBytes, onBytes });
        const encoding = headers["content-encoding"];
        const contentEncoding = typeof encoding === "string" ? encoding : undefined;
        const bytes = await withoutEncoding(sent, { contentEncoding, maxImageBytes, onBytes });
        return { kind: "fetched", bytes, validator: validatorOf(headers, url) };
      }
      discard(body);
      if (statusCode === 304 && condition !== null) return { kind: "unchanged" };
      if (redirectStatuses.has(statusCode) && typeof headers.location === "string") {
        return { kind: "redirect", location: headers.location };
      }
      const isTransient = statusCode >= 500 || transientStatuses.has(statusCode);
      return { kind: "failed", reason: `its host answered with status ${statusCode}`, isTransient };
    } catch (error) {
      fetchOptions.signal.throwIfAborted();
      if (error instanceof EngineError) throw error;
      return { kind: "failed", ...explain(error), cause: error };
    }
  }

  /** Parses the address and checks that it may be fetched. */
  function judge(address: string, reference: string, base?: URL): URL {
    const refuse = (reason: string, options: EngineErrorOptions = {}): EngineError =>
      new EngineError("invalid_image_reference", `The image ${describeReference(reference)} ${reason}.`, options);
    if (!URL.canParse(address, base?.href)) {
      throw refuse(base === undefined ? "is not a valid URL" : "redirects to an invalid URL");
    }
    const url = new URL(address, base);
    const scheme = url.protocol.slice(0, -1);
    if (!schemes.includes(scheme) || (base?.protocol === "https:" && scheme !== "https")) {
      throw refuse(
        base === undefined ? `does not use ${schemes.join(" or ")}` : `redirects to ${scheme}:, which is not allowed`,
      );
    }
    if (url.username !== "" || url.password !== "") {
      throw refuse("contains a user name or password, which is not allowed");
    }
    if (allowedDomains.size > 0 && !allowedDomains.has(url.hostname)) {
      throw refuse(`is at ${url.hostname.slice(0, 60)}, which is not one of the allowed domains`, {
        setting: "allowedDomains",
      });
    }
    return url;
  }

  async function fetchIfChanged(reference: string, fetchOptions: FetchIfChangedOptions): Promise<FetchedImage> {
    fetchOptions.signal.throwIfAborted();
    const unreachable = (reason: string, options: EngineErrorOptions = {}): EngineError => {
      const message = `The image ${describeReference(reference)} is unreachable: ${reason}.`;
      return new EngineError("image_unreachable", message, options);
    };
    let url = judge(reference, reference);
    let numRedirects = 0;
    let numAttempts = 0;
    for (;;) {
      const outcome = await request(url, fetchOptions);
      switch (outcome.kind) {
        case "unchanged":
        case "fetched":
          return outcome;
        case "redirect":
          if (++numRedirects > MAX_REDIRECTS) throw unreachable(`it redirects more than ${MAX_REDIRECTS} times`);
          url = judge(outcome.location, reference, url);
          break;
        case "failed":
          if (!outcome.isTransient || ++numAttempts === MAX_ATTEMPTS) {
            const { reason, isTransient, cause } = outcome;
            throw unreachable(reason, { isTransient, cause });
          }
          await delay(RETRY_DELAY_MS * 4 ** (numAttempts - 1), null, { signal: fetchOptions.signal }).catch(() => {
            fetchOptions.signal.throwIfAborted();
          });
          break;
        default:
          outcome satisfies never;
      }
    }
  }

  async function disconnect(): Promise<void> {
    const closing = agent;
    agent = null;
    await (await closing)?.destroy();
  }

  return {
    schemes,
    fetch: fetchAlways(fetchIfChanged),
    fetchIfChanged,
    disconnect,
    close: disconnect,
  };
}

/** Describes a failed connection by its error code only, because messages may contain internal addresses. */
function explain(error: unknown): { reason: string; isTransient: boolean } {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  switch (code) {
    case "ENOTFOUND":
      return { reason: "its host name does not exist", isTransient: false };
    case "EAI_AGAIN":
      return { reason: "its host name cannot be resolved at the moment", isTransient: true };
    case "ECONNREFUSED":
      return { reason: "its host refuses connections", isTransient: true };
    case "UND_ERR_CONNECT_TIMEOUT":
    case "UND_ERR_HEADERS_TIMEOUT":
    case "UND_ERR_BODY_TIMEOUT":
    case "ETIMEDOUT":
      return { reason: "its host does not answer", isTransient: true };
    default:
      return /CERT|SSL|TLS|ISSUER|SIGNATURE/.test(code)
        ? { reason: "its host has no valid certificate", isTransient: false }
        : { reason: "the connection failed", isTransient: true };
  }
}
