/** An issuer of OpenID Connect with keys of its own, on this machine. */
import { createSign, generateKeyPairSync, randomUUID } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface TokenOptions {
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly header?: Readonly<Record<string, unknown>>;
  /** Default: the newest of the issuer. */
  readonly key?: IssuerKey;
}

export interface IssuerKey {
  readonly id: string;
  readonly privateKey: KeyObject;
  readonly jwk: object;
}

export interface OidcIssuer extends AsyncDisposable {
  readonly url: string;
  /** A token for the audience "fovea" that is valid for an hour. */
  readonly sign: (options?: TokenOptions) => string;
  /** Publishes another key beside the first ones. */
  readonly rotate: () => void;
  /** Number of times that the keys were read. */
  readonly numReads: () => number;
  /** Instead of the keys: a status or a text. Null again gives the keys. */
  answer: number | string | null;
}

export function createIssuerKey(kind: "rsa" | "ec" = "rsa"): IssuerKey {
  const { publicKey, privateKey } =
    kind === "rsa"
      ? generateKeyPairSync("rsa", { modulusLength: 2048 })
      : generateKeyPairSync("ec", { namedCurve: "P-256" });
  const id = randomUUID();
  return { id, privateKey, jwk: { ...publicKey.export({ format: "jwk" }), kid: id, use: "sig" } };
}

export async function startOidcIssuer(): Promise<OidcIssuer> {
  const keys = [createIssuerKey("rsa")];
  let numReads = 0;
  const server = createServer((request, response) => {
    const json = (value: object): void => void response.end(JSON.stringify(value));
    if (request.url === "/.well-known/openid-configuration")
      return json({ issuer: issuer.url, jwks_uri: `${issuer.url}/keys` });
    numReads++;
    if (typeof issuer.answer === "number") return void response.writeHead(issuer.answer).end();
    if (typeof issuer.answer === "string") return void response.end(issuer.answer);
    json({ keys: keys.map(({ jwk }) => jwk) });
  });
  const listening = Promise.withResolvers<void>();
  server.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  const issuer: OidcIssuer = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sign({ claims = {}, header = {}, key = keys.at(-1)! } = {}) {
      const seconds = Math.floor(Date.now() / 1000);
      const alg = key.privateKey.asymmetricKeyType === "ec" ? "ES256" : "RS256";
      const parts = [
        { alg, kid: key.id, typ: "JWT", ...header },
        {
          iss: issuer.url,
          aud: "fovea",
          sub: "110000000000000000001",
          email: "pusher@project.iam.gserviceaccount.com",
          email_verified: true,
          iat: seconds,
          exp: seconds + 3600,
          ...claims,
        },
      ];
      const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
      const signature = createSign("sha256").update(signed).sign({ key: key.privateKey, dsaEncoding: "ieee-p1363" });
      return `${signed}.${signature.toString("base64url")}`;
    },
    rotate: () => void keys.push(createIssuerKey("ec")),
    numReads: () => numReads,
    answer: null,
    async [Symbol.asyncDispose]() {
      const closed = Promise.withResolvers<void>();
      server.close(() => closed.resolve());
      server.closeAllConnections();
      await closed.promise;
    },
  };
  return issuer;
}
