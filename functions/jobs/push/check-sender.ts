/** Who may push events: senders with the shared secret, and those that an OpenID Connect issuer vouches for. */
import { createHash, timingSafeEqual } from "node:crypto";

import { HttpError } from "../../http/errors.ts";
import { createOidcVerifier } from "./oidc.ts";

export interface SenderSettings {
  /** Null accepts no secret. */
  readonly secret: string | null;
  /** Null accepts no ID tokens. */
  readonly audience: string | null;
  readonly issuer: string;
  /** Verified e-mail addresses and subjects of ID tokens. */
  readonly senders: readonly string[];
}

/** Throws HttpError 401 or 403 for a sender that is not allowed, and 503 if that cannot be found out. */
export type CheckSender = (headers: Headers) => Promise<void>;

export function createSenderCheck({ secret, audience, issuer, senders }: SenderSettings): CheckSender {
  const secretDigest = secret === null ? null : digest(secret);
  const oidc = audience === null ? null : createOidcVerifier({ issuer, audience });

  return async (headers) => {
    const bearer = /^bearer +(\S+)\s*$/i.exec(headers.get("authorization") ?? "")?.[1];
    // EventBridge sends an API key in a header of the connection's choice.
    const sent = headers.get("x-api-key") ?? bearer;
    if (secretDigest !== null && sent !== undefined && timingSafeEqual(digest(sent), secretDigest)) return;
    if (oidc === null || bearer === undefined) throw unauthorized(sent !== undefined);
    const { subject, email } = await oidc.verify(bearer);
    if (senders.includes(subject) || (email !== null && senders.includes(email))) return;
    throw new HttpError(
      403,
      "sender_not_allowed",
      `The ID token is valid, but JOB_PUSH_SENDERS lists neither its verified e-mail address (${email ?? "none"}) nor its subject (${subject.slice(0, 200)}).`,
    );
  };
}

function digest(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

function unauthorized(wasSent: boolean): HttpError {
  const message = wasSent
    ? "The secret is not the one of this service."
    : "Send the secret (Authorization: Bearer <secret>, or X-Api-Key), or an ID token.";
  return new HttpError(401, "invalid_sender", message, { headers: { "WWW-Authenticate": "Bearer" } });
}
