/** Verifies ID tokens of OpenID Connect: signature, issuer, audience and time. */
import { createPublicKey, verify } from "node:crypto";
import type { JsonWebKey, KeyObject } from "node:crypto";

import { HttpError } from "../../http/errors.ts";

/** Clocks differ. */
const LEEWAY_SECONDS = 60;
/** Keys are read again after this time, and when a token names an unknown one. */
const FRESH_MS = 60 * 60 * 1000;
/** Keys are used for this long while the issuer cannot be reached. Issuers announce new keys at least this early. */
const STALE_MS = 24 * 60 * 60 * 1000;
/** Senders of unknown keys do not make the issuer busy. */
const MIN_INTERVAL_MS = 30_000;
const FETCH_TIMEOUT_MS = 5_000;
const MAX_FETCH_BYTES = 1024 ** 2;
const MAX_TOKEN_LENGTH = 16 * 1024;

export interface OidcOptions {
  /** As in the tokens; its keys are found by `/.well-known/openid-configuration`. */
  readonly issuer: string;
  readonly audience: string;
  /** Unix time in milliseconds. Default: the clock. */
  readonly now?: () => number;
}

export interface Claims {
  readonly subject: string;
  /** Null if the issuer has not verified it. */
  readonly email: string | null;
}

export interface OidcVerifier {
  /** Throws HttpError 401 that says what is wrong with the token, and 503 if the issuer's keys cannot be read. */
  readonly verify: (token: string) => Promise<Claims>;
}

interface Keys {
  readonly byId: ReadonlyMap<string, { readonly key: KeyObject; readonly algorithm: Algorithm }>;
  readonly readAt: number;
}

/** Algorithms with a public key, by the type of the key. */
const algorithms = { RSA: "RS256", EC: "ES256" } as const;
type Algorithm = (typeof algorithms)[keyof typeof algorithms];

export function createOidcVerifier({ issuer, audience, now = Date.now }: OidcOptions): OidcVerifier {
  let keys: Keys | null = null;
  let reading: Promise<Keys> | null = null;
  let triedAt = Number.NEGATIVE_INFINITY;

  async function findKey(id: string) {
    const age = keys === null ? Number.POSITIVE_INFINITY : now() - keys.readAt;
    const isWanted = age > FRESH_MS || keys?.byId.has(id) !== true;
    if (isWanted && (reading !== null || now() - triedAt > MIN_INTERVAL_MS)) {
      if (reading === null) triedAt = now();
      reading ??= readKeys(issuer, now).finally(() => (reading = null));
      try {
        keys = await reading;
      } catch (error) {
        if (age > STALE_MS) throw unreachable(issuer, error);
      }
    }
    if (keys === null || now() - keys.readAt > STALE_MS) throw unreachable(issuer, null);
    return keys.byId.get(id);
  }

  return {
    async verify(token) {
      const { header, claims, signed, signature } = decodeToken(token);
      const { alg, kid } = header;
      const key = await findKey(typeof kid === "string" ? kid : "");
      if (key === undefined) throw invalid("its key is none of the issuer's");
      if (alg !== key.algorithm) throw invalid(`its algorithm is not ${key.algorithm}`);
      const input = { key: key.key, dsaEncoding: "ieee-p1363" } as const;
      if (!verify("sha256", Buffer.from(signed), input, signature)) throw invalid("its signature is wrong");
      const seconds = now() / 1000;
      const { iss, aud, exp, nbf, sub, email, email_verified: isVerified } = claims;
      if (iss !== issuer) throw invalid(`its issuer is not ${issuer}`);
      if (aud !== audience && !(Array.isArray(aud) && aud.includes(audience))) {
        throw invalid(`its audience is not ${audience}`);
      }
      if (typeof exp !== "number" || exp + LEEWAY_SECONDS < seconds) throw invalid("it has expired");
      if (typeof nbf === "number" && nbf - LEEWAY_SECONDS > seconds) throw invalid("it is not valid yet");
      if (typeof sub !== "string" || sub === "") throw invalid("it has no subject");
      return { subject: sub, email: typeof email === "string" && isVerified === true ? email : null };
    },
  };
}

interface DecodedToken {
  readonly header: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
  readonly signed: string;
  readonly signature: Buffer;
}

function decodeToken(token: string): DecodedToken {
  const parts = token.length <= MAX_TOKEN_LENGTH ? token.split(".") : [];
  const [header, claims, signature] = parts;
  if (parts.length !== 3 || header === undefined || claims === undefined || signature === undefined) {
    throw invalid("it is no JSON Web Token");
  }
  return {
    header: decodePart(header),
    claims: decodePart(claims),
    signed: `${header}.${claims}`,
    signature: Buffer.from(signature, "base64url"),
  };
}

function decodePart(part: string): Readonly<Record<string, unknown>> {
  try {
    const value = JSON.parse(Buffer.from(part, "base64url").toString()) as unknown;
    if (typeof value === "object" && value !== null) return value as Readonly<Record<string, unknown>>;
  } catch {
    // It is no JSON.
  }
  throw invalid("it is no JSON Web Token");
}

async function readKeys(issuer: string, now: () => number): Promise<Keys> {
  const readAt = now();
  const configuration = await fetchJson(`${issuer.replace(/\/$/, "")}/.well-known/openid-configuration`);
  const { jwks_uri: uri } = configuration as { readonly jwks_uri?: unknown };
  if (typeof uri !== "string") throw new Error("The issuer's configuration has no jwks_uri.");
  const { keys } = (await fetchJson(uri)) as { readonly keys?: unknown };
  if (!Array.isArray(keys)) throw new Error("The issuer's keys are no list.");
  return { byId: new Map(keys.flatMap((jwk) => importKey(jwk as JsonWebKey))), readAt };
}

/** Keys of other kinds are left out. */
function importKey(jwk: JsonWebKey): [string, { readonly key: KeyObject; readonly algorithm: Algorithm }][] {
  const algorithm = jwk.kty === "RSA" || (jwk.kty === "EC" && jwk.crv === "P-256") ? algorithms[jwk.kty] : null;
  if (algorithm === null || typeof jwk.kid !== "string" || (jwk.use !== undefined && jwk.use !== "sig")) return [];
  try {
    return [[jwk.kid, { key: createPublicKey({ key: jwk, format: "jwk" }), algorithm }]];
  } catch {
    return [];
  }
}

async function fetchJson(url: string): Promise<object> {
  // Imported late, because every start would pay for it.
  const { request } = await import("undici");
  const { statusCode, body } = await request(url, { signal: AbortSignal.timeout(FETCH_TIMEOUT_MS) });
  let text = "";
  for await (const chunk of body.setEncoding("utf8")) {
    text += chunk as string;
    if (text.length > MAX_FETCH_BYTES) throw new Error(`${url} is longer than ${MAX_FETCH_BYTES} bytes.`);
  }
  if (statusCode !== 200) throw new Error(`${url} answered with status ${statusCode}.`);
  const value = JSON.parse(text) as unknown;
  if (typeof value !== "object" || value === null) throw new Error(`${url} is no JSON object.`);
  return value;
}

function invalid(problem: string): HttpError {
  return new HttpError(401, "invalid_token", `The ID token is not accepted: ${problem}.`, {
    headers: { "WWW-Authenticate": "Bearer" },
  });
}

function unreachable(issuer: string, cause: unknown): HttpError {
  return new HttpError(503, "issuer_unreachable", `The keys of ${issuer} cannot be read; send the event again later.`, {
    headers: { "Retry-After": "30" },
    cause,
  });
}
