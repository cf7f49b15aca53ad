/**
 * Tokens of Microsoft Entra for Azure Storage. Sources: "OAuth 2.0 client credentials flow" of the Microsoft identity
 * platform, and "How to use managed identities" of App Service, Container Apps and virtual machines.
 */
import { readFile } from "node:fs/promises";
import { z } from "zod";

import type { AzureIdentityConfig } from "../../contract/config.ts";
import { EngineError } from "../../contract/errors.ts";
import { describeError } from "../../excerpt.ts";
import { ANSWER_TIMEOUT_MS, explainFailure, readText } from "../http-answers.ts";
import { TransientDownloadError } from "../parallel-ranges.ts";
import { systemReason } from "../regular-file.ts";

const resource = "https://storage.azure.com/";
const assertionType = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/** Tokens live for an hour or more. A call that begins with a token may take two minutes. */
const RENEW_BEFORE_MS = 300_000;
/** The metadata service is on the machine itself. Elsewhere nothing answers at its address. */
const METADATA_TIMEOUT_MS = 2_000;

/** Managed identities write numbers as texts. */
const tokenAnswer = z.object({
  access_token: z.string().min(1),
  expires_in: z.coerce.number().optional(),
  expires_on: z.coerce.number().optional(),
});

export interface AzureTokens {
  /**
   * Null if the machine has no identity.
   *
   * @throws EngineError `invalid_configuration`, `aborted`; TransientDownloadError.
   */
  readonly get: (signal: AbortSignal) => Promise<string | null>;
}

interface Token {
  readonly value: string | null;
  readonly renewAt: number;
}

export function createAzureTokens(identity: AzureIdentityConfig): AzureTokens {
  let token: Promise<Token> | null = null;
  return {
    async get(signal) {
      for (;;) {
        // The signal of one call must not end the request of others, so the request has only a time limit.
        const isNew = token === null;
        const current = (token ??= requestToken(identity));
        try {
          const { value, renewAt } = await current;
          signal.throwIfAborted();
          if (isNew || Date.now() < renewAt) return value;
        } catch (error) {
          if (token === current) token = null;
          throw error;
        }
        if (token === current) token = null;
      }
    },
  };
}

async function requestToken(identity: AzureIdentityConfig): Promise<Token> {
  const { tenantId, clientId, clientSecret, federatedTokenFile, platformEndpoint } = identity;
  if (tenantId !== null && clientId !== null && (federatedTokenFile ?? clientSecret) !== null) {
    return requestFromEntra(identity, tenantId, clientId);
  }
  return platformEndpoint === null ? requestFromMetadata(identity) : requestFromPlatform(identity, platformEndpoint);
}

async function requestFromEntra(
  { authorityHost, clientSecret, federatedTokenFile }: AzureIdentityConfig,
  tenantId: string,
  clientId: string,
): Promise<Token> {
  const url = new URL(`${encodeURIComponent(tenantId)}/oauth2/v2.0/token`, `${authorityHost.replace(/\/*$/, "")}/`);
  const proof =
    federatedTokenFile === null
      ? { client_secret: clientSecret ?? "" }
      : { client_assertion_type: assertionType, client_assertion: await readAssertion(federatedTokenFile) };
  const scope = `${resource}.default`;
  const body = new URLSearchParams({ grant_type: "client_credentials", client_id: clientId, scope, ...proof });
  return request(url, { method: "POST", body });
}

async function readAssertion(file: string): Promise<string> {
  try {
    return (await readFile(file, "utf8")).trim();
  } catch (cause) {
    const message = `The file of the workload's token, ${file}, cannot be read (${systemReason(cause)}).`;
    throw new EngineError("invalid_configuration", message, { cause, setting: "azure" });
  }
}

function requestFromPlatform(identity: AzureIdentityConfig, endpoint: string): Promise<Token> {
  const url = managedIdentityUrl(endpoint, "2019-08-01", identity);
  return request(url, { headers: { "x-identity-header": identity.platformSecret ?? "" } });
}

async function requestFromMetadata(identity: AzureIdentityConfig): Promise<Token> {
  const endpoint = `${identity.metadataUrl}/metadata/identity/oauth2/token`;
  const url = managedIdentityUrl(endpoint, "2018-02-01", identity);
  try {
    return await request(url, { headers: { metadata: "true" } }, METADATA_TIMEOUT_MS);
  } catch (error) {
    const isBusy = error instanceof TransientDownloadError && error.cause === undefined;
    if (isBusy || identity.clientId !== null) throw error;
    // No metadata service, or no identity. Public containers need none.
    return { value: null, renewAt: Infinity };
  }
}

function managedIdentityUrl(endpoint: string, version: string, { clientId }: AzureIdentityConfig): URL {
  const url = new URL(endpoint);
  url.searchParams.set("api-version", version);
  url.searchParams.set("resource", resource);
  if (clientId !== null) url.searchParams.set("client_id", clientId);
  return url;
}

async function request(url: URL, init: RequestInit, timeoutMs = ANSWER_TIMEOUT_MS): Promise<Token> {
  const signal = AbortSignal.timeout(timeoutMs);
  const failure = `No token of Microsoft Entra: ${url.origin} cannot be reached`;
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(url, { ...init, signal, redirect: "error" });
    text = await readText(answer, signal, url.origin);
  } catch (cause) {
    throw explainFailure(cause, failure, signal);
  }
  if (answer.status === 429 || answer.status >= 500) {
    throw new TransientDownloadError(
      `No token of Microsoft Entra: ${url.origin} answers with status ${answer.status}.`,
    );
  }
  const parsed = tokenAnswer.safeParse(parseJson(text));
  if (!answer.ok || !parsed.success) {
    // An answer of another form may contain a token.
    const reason = answer.ok ? "without a token" : `with status ${answer.status}: ${describeError(text)}`;
    const message = `No token of Microsoft Entra: ${url.origin} answers ${reason}.`;
    throw new EngineError("invalid_configuration", message);
  }
  const { access_token: value, expires_in: seconds, expires_on: expiresOn } = parsed.data;
  const expiresAt = seconds === undefined ? (expiresOn ?? 0) * 1000 : Date.now() + seconds * 1000;
  return { value, renewAt: expiresAt - RENEW_BEFORE_MS };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
