/**
 * Azure Blob Storage's REST API as far as checkpoints need it (https://learn.microsoft.com/rest/api/storageservices), and
 * the services that give tokens: Microsoft Entra, a platform's endpoint, and the metadata of a machine.
 */
import { createHmac, randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { AzureIdentityConfig } from "../../../../engine/contract/config.ts";
import { startStoreServer } from "./store-server.ts";
import type { Answer, Page, StoreServer } from "./store-server.ts";

export const azureAccount = "testaccount";
export const azureKey = Buffer.from("a key for tests").toString("base64");
/** No machine has these, and nothing answers at these addresses. */
export const noAzureIdentity: AzureIdentityConfig = {
  tenantId: null,
  clientId: null,
  clientSecret: null,
  federatedTokenFile: null,
  authorityHost: "http://127.0.0.1:1",
  platformEndpoint: null,
  platformSecret: null,
  metadataUrl: "http://127.0.0.1:1",
};
export const azureSignature = "sv=2023-11-03&sr=c&sp=rl&sig=a%2Bsecret%3D";

export interface AzureServer extends StoreServer {
  /** `BlobEndpoint` of a connection string: the account is part of the path, as in emulators. */
  readonly blobUrl: string;
  readonly access: {
    /** Whether calls without credentials are answered. */
    isPublic: boolean;
    readonly tokens: Set<string>;
  };
}

export async function startAzureServer(): Promise<AzureServer> {
  const access = { isPublic: false, tokens: new Set<string>() };
  const server = await startStoreServer(() => ({
    fail: azureError,
    read(request, url) {
      if (!access.isPublic && !isAuthorized(request, url, access.tokens)) {
        const code =
          request.headers.authorization === undefined ? "NoAuthenticationInformation" : "AuthenticationFailed";
        return { kind: "refused", answer: azureError(code === "AuthenticationFailed" ? 403 : 401, code) };
      }
      const [, account, bucket = "", ...path] = url.pathname.split("/").map(decodeURIComponent);
      if (account !== azureAccount) return { kind: "refused", answer: azureError(400, "InvalidUri") };
      const { searchParams } = url;
      if (searchParams.get("comp") !== "list") {
        const version = request.headers["if-match"]?.replaceAll('"', "") ?? null;
        return { kind: "object", bucket, key: path.join("/"), version };
      }
      const listing = {
        bucket,
        prefix: searchParams.get("prefix") ?? "",
        delimiter: searchParams.get("delimiter") ?? "",
        start: Number(searchParams.get("marker") ?? 0),
      };
      return { kind: "list", listing, answer: listAnswer };
    },
  }));
  return Object.assign(server, { blobUrl: `${server.url}/${azureAccount}`, access });
}

function isAuthorized(request: IncomingMessage, url: URL, tokens: ReadonlySet<string>): boolean {
  const [scheme, value = ""] = (request.headers.authorization ?? "").split(" ");
  if (scheme === "SharedKey") return value === `${azureAccount}:${sign(request, url)}`;
  if (scheme === "Bearer") return tokens.has(value) && request.headers["x-ms-version"] !== undefined;
  return [...new URLSearchParams(azureSignature)].every(([name, text]) => url.searchParams.get(name) === text);
}

/** From the bytes of the request, as the documentation of "Shared Key" says. */
function sign({ method, headers }: IncomingMessage, url: URL): string {
  const header = (name: string): string => String(headers[name] ?? "");
  const length = header("content-length") === "0" ? "" : header("content-length");
  let text = `${method}\n${header("content-encoding")}\n${header("content-language")}\n${length}\n`;
  for (const name of ["content-md5", "content-type", "date", "if-modified-since", "if-match", "if-none-match"])
    text += `${header(name)}\n`;
  text += `${header("if-unmodified-since")}\n${header("range")}\n`;
  for (const name of Object.keys(headers).sort()) if (name.startsWith("x-ms-")) text += `${name}:${header(name)}\n`;
  text += `/${azureAccount}${url.pathname}`;
  const query = url.search.slice(1).split("&").filter(Boolean).sort();
  for (const field of query) {
    const [name = "", value = ""] = field.split("=");
    text += `\n${decodeURIComponent(name)}:${decodeURIComponent(value.replaceAll("+", " "))}`;
  }
  return createHmac("sha256", Buffer.from(azureKey, "base64")).update(text).digest("base64");
}

const escape = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll("ö", "&#xF6;");

function listAnswer({ objects, next }: Page): Answer {
  const blobs = objects.map(
    ({ key, object: { bytes, version, md5, contentEncoding, listedSize } }) =>
      `<Blob><Name>${escape(key)}</Name><Properties><Etag>${version}</Etag><Content-Length>${listedSize ?? bytes.length}` +
      `</Content-Length><Content-Encoding>${contentEncoding ?? ""}</Content-Encoding><Content-Language />` +
      `${md5 === null ? "<Content-MD5 />" : `<Content-MD5>${md5}</Content-MD5>`}</Properties><OrMetadata /></Blob>`,
  );
  const marker = next === null ? "<NextMarker />" : `<NextMarker>${next}</NextMarker>`;
  const body =
    `<?xml version="1.0" encoding="utf-8"?><EnumerationResults><Blobs>${blobs.join("")}` +
    `<BlobPrefix><Name>folder/</Name></BlobPrefix></Blobs>${marker}</EnumerationResults>`;
  return { status: 200, headers: { "content-type": "application/xml" }, body };
}

function azureError(status: number, code: string): Answer {
  const body = `<?xml version="1.0" encoding="utf-8"?><Error><Code>${code}</Code><Message>No.</Message></Error>`;
  return { status, headers: { "x-ms-error-code": code, "content-type": "application/xml" }, body };
}

export interface TokenServer extends AsyncDisposable {
  readonly url: string;
  /** Path, form and headers of each request. */
  readonly requests: { readonly path: string; readonly body: string; readonly headers: IncomingMessage["headers"] }[];
  /** Answers of the next requests instead of a token. */
  readonly failures: Answer[];
}

/** Gives tokens that `accept` receives, in the form of all three services. */
export async function startTokenServer(accept: Set<string>, seconds: number): Promise<TokenServer> {
  const requests: TokenServer["requests"] = [];
  const failures: Answer[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    requests.push({ path: request.url ?? "", body: Buffer.concat(chunks).toString(), headers: request.headers });
    const failure = failures.shift();
    if (failure !== undefined) return void response.writeHead(failure.status).end(failure.body ?? "");
    const token = randomUUID();
    accept.add(token);
    // Managed identities write numbers as texts, and App Service only the time of the end.
    const isPlatform = request.headers["x-identity-header"] !== undefined;
    const expiry = isPlatform
      ? { expires_on: String(Math.floor(Date.now() / 1000) + seconds) }
      : { expires_in: request.method === "POST" ? seconds : String(seconds) };
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ access_token: token, token_type: "Bearer", ...expiry }));
  };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    failures,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}
