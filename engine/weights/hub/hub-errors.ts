/** Turns failed calls of a hub into errors that say what to do. */
import { EngineError, type EngineErrorOptions } from "../../contract/errors.ts";
import { excerpt } from "../../excerpt.ts";
import { retryAfterMsOf } from "../http-answers.ts";
import { TransientDownloadError } from "../parallel-ranges.ts";

/** The hub counts requests in windows of five minutes. */
const MAX_RETRY_AFTER_MS = 300_000;

export interface HubCall {
  readonly repository: string;
  readonly revision: string;
  readonly endpoint: URL;
  readonly url: URL;
  /** Whether the hub itself answered, not its storage. */
  readonly isOnHub: boolean;
  readonly hasToken: boolean;
}

/** The error of an answer that is neither a success nor a redirect. Source: `hf_raise_for_status` of huggingface_hub. */
export function explainAnswer({ status, headers }: Response, call: HubCall): Error {
  const { repository, revision, endpoint, url, hasToken } = call;
  const errorCode = headers.get("x-error-code");
  const errorMessage = headers.get("x-error-message") ?? "";
  const fail = (message: string, options: EngineErrorOptions = {}): EngineError =>
    new EngineError("invalid_configuration", message, options);
  if (status === 429) return explainRateLimit(headers, call);
  if (status === 408 || status >= 500) {
    const asked = retryAfterMsOf(headers);
    const retryAfterMs = asked === null ? null : Math.min(asked, MAX_RETRY_AFTER_MS);
    return new TransientDownloadError(`${url.origin} answers with status ${status}.`, { retryAfterMs });
  }
  if (status === 416)
    return new EngineError("invalid_checkpoint", `${url.pathname} has fewer bytes than the hub lists.`);
  if (!call.isOnHub) {
    // An expired signature; the next attempt requests another address.
    return new TransientDownloadError(`${url.origin} does not serve the file (status ${status}).`);
  }
  if (errorCode === "GatedRepo") {
    const page = new URL(repository, endpoint).href;
    const ending = hasToken ? "; the present token has no access" : "";
    return fail(
      `${repository} is gated: accept its conditions at ${page}, and give a token of that account${ending}.`,
      { setting: "hubToken" },
    );
  }
  if (errorCode === "RevisionNotFound") return fail(`${repository} has no revision ${revision}.`);
  if (errorCode === "EntryNotFound") {
    return new EngineError("invalid_checkpoint", `${url.pathname} does not exist, although the hub lists it.`);
  }
  if (status === 401 && /invalid credentials/i.test(errorMessage)) {
    return fail(`${endpoint.origin} rejects the token: give a valid one.`, { setting: "hubToken" });
  }
  // For a visitor without access, a private repository does not exist.
  if (errorCode === "RepoNotFound" || status === 401 || status === 404) {
    const remedy = hasToken ? "The token may not have access to it." : "A private one needs a token.";
    return fail(`${endpoint.origin} has no repository ${repository}. ${remedy}`, { setting: "hubToken" });
  }
  const reason = errorMessage === "" ? "" : `: ${excerpt(errorMessage)}`;
  return fail(`${url.origin} rejects the request for ${repository} (status ${status}${reason}).`);
}

function explainRateLimit(headers: Headers, { endpoint, hasToken }: HubCall): Error {
  const retryAfterMs = retryAfterMsOf(headers);
  const remedy = hasToken ? "" : "; a token raises the limit";
  const message = `${endpoint.origin} limits the rate of requests (status 429)${remedy}.`;
  if (retryAfterMs !== null && retryAfterMs > MAX_RETRY_AFTER_MS) {
    const wait = `It asks to wait ${retryAfterMs / 1000} seconds; at most ${MAX_RETRY_AFTER_MS / 1000} are possible.`;
    return new EngineError("invalid_configuration", `${message} ${wait}`, hasToken ? {} : { setting: "hubToken" });
  }
  return new TransientDownloadError(message, { retryAfterMs });
}
