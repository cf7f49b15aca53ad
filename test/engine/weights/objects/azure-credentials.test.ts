import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";

import type { AzureConfig, AzureIdentityConfig } from "../../../../engine/contract/config.ts";
import { signWithKey } from "../../../../engine/weights/objects/azure-authorization.ts";
import { createAzureObjects } from "../../../../engine/weights/objects/azure-objects.ts";
import {
  azureAccount,
  azureKey,
  azureSignature,
  noAzureIdentity,
  startAzureServer,
  startTokenServer,
} from "../../../support/servers/object-stores/azure-server.ts";
import type { AzureServer } from "../../../support/servers/object-stores/azure-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

let server: AzureServer;

beforeAll(async () => {
  server = await startAzureServer();
  server.put("models", "tiny/config.json", "{}");
});
afterAll(() => server[Symbol.asyncDispose]());
beforeEach(() => {
  server.access.tokens.clear();
  server.access.isPublic = false;
});

function openWith(connection: string, identity: Partial<AzureIdentityConfig> = {}, azure: Partial<AzureConfig> = {}) {
  const connectionString = `BlobEndpoint=${server.blobUrl}/;${connection}`;
  const none = { accountName: null, accountKey: null, sasToken: null };
  const config = { ...none, connectionString, identity: { ...noAzureIdentity, ...identity }, ...azure };
  return createAzureObjects({ bucket: "models", prefix: "tiny/" }, config);
}

const listWith = (connection: string, identity?: Partial<AzureIdentityConfig>) =>
  openWith(connection, identity).list("", undefined);
const errorOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((reason: unknown) => reason);
const oneObject = { files: [{ name: "config.json", byteLength: 2 }] };

// Recorded from @azure/storage-blob 12.34.0, whose HTTP client was replaced to see the requests.
test.for([
  {
    url: "https://account.blob.core.windows.net/models?comp=list&prefix=v%201%2Ftiny%2B%C3%A4%2F&restype=container&delimiter=%2F",
    headers: {
      "x-ms-version": "2026-10-06",
      "x-ms-client-request-id": "d56ee622-0ef9-417d-9b48-15891b4716b1",
      "x-ms-date": "Sun, 22 Nov 2026 16:01:18 GMT",
    },
    signature: "LQwYEbFedfBpZmmTiM1D2fnexJa7nrRBEHquqoNuv5c=",
  },
  {
    url: "https://account.blob.core.windows.net/models/v%201/tiny%2B%C3%A4/model%20(1).safetensors",
    headers: {
      "x-ms-version": "2026-10-06",
      "x-ms-range": "bytes=8-23",
      "if-match": '"0x8D"',
      "x-ms-client-request-id": "d59c1344-79ec-4af7-b3c5-39a75423a935",
      "x-ms-date": "Sun, 22 Nov 2026 16:01:18 GMT",
    },
    signature: "cbb/0IVidckUDpYbz7qLGZ8A3o9DoOeDsFyTbYwxV6I=",
  },
])("a call is signed as Azure's own client signs it: $url", ({ url, headers, signature }) => {
  const key = Buffer.from("a key of an account for tests").toString("base64");
  expect(signWithKey(new URL(url), new Headers(headers as Record<string, string>), "account", key)).toBe(signature);
});

test("the account's key and a shared access signature are accepted, and wrong ones named", async () => {
  expect(await listWith(`AccountName=${azureAccount};AccountKey=${azureKey}`)).toMatchObject(oneObject);
  expect(await listWith(`SharedAccessSignature=${azureSignature}`)).toMatchObject(oneObject);
  expect(await listWith(`SharedAccessSignature=?${azureSignature}`)).toMatchObject(oneObject);
  expect(await errorOf(listWith(`AccountName=${azureAccount};AccountKey=d3Jvbmc=`))).toMatchObject({
    code: "invalid_configuration",
    message:
      `az://models/tiny/ in ${server.blobUrl} cannot be listed: rejected (AuthenticationFailed, status 403). ` +
      `Check the key of the account ${azureAccount}, and the clock of this machine.`,
  });
  expect(await errorOf(listWith(`SharedAccessSignature=${azureSignature}x`))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/The shared access signature needs the rights to read and to list/),
  });
});

test("a workload's token is exchanged, and read again from its file for the next one", async () => {
  await using tokens = await startTokenServer(server.access.tokens, 3600);
  await using folder = await createTemporaryFolder();
  const federatedTokenFile = join(folder.path, "token");
  await writeFile(federatedTokenFile, "a workload's token\n");
  const identity = { tenantId: "a-tenant", clientId: "a-client", federatedTokenFile, authorityHost: `${tokens.url}/` };
  const objects = openWith("", identity);
  expect(await objects.list("", undefined)).toMatchObject(oneObject);
  await objects.list("", undefined);
  expect(tokens.requests).toHaveLength(1);
  const [{ path, body }] = tokens.requests as [(typeof tokens.requests)[0]];
  expect(path).toBe("/a-tenant/oauth2/v2.0/token");
  expect(Object.fromEntries(new URLSearchParams(body))).toEqual({
    grant_type: "client_credentials",
    client_id: "a-client",
    scope: "https://storage.azure.com/.default",
    client_assertion_type: "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    client_assertion: "a workload's token",
  });
  const missing = openWith("", { ...identity, federatedTokenFile: join(folder.path, "none") });
  expect(await errorOf(missing.list("", undefined))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/^The file of the workload's token, .*none, cannot be read \(ENOENT/),
  });
});

test("an application's secret is exchanged, and its refusal shown without the secret", async () => {
  await using tokens = await startTokenServer(server.access.tokens, 3600);
  const identity = { tenantId: "t", clientId: "c", clientSecret: "hidden", authorityHost: tokens.url };
  expect(await listWith("", identity)).toMatchObject(oneObject);
  tokens.failures.push({ status: 401, body: '{"error":"invalid_client"}' });
  const error = (await errorOf(listWith("", identity))) as Error;
  expect(error).toMatchObject({
    code: "invalid_configuration",
    message: `No token of Microsoft Entra: ${tokens.url} answers with status 401: {"error":"invalid_client"}.`,
  });
});

test("a platform's endpoint and a machine's metadata give tokens", async () => {
  await using tokens = await startTokenServer(server.access.tokens, 3600);
  const platform = { platformEndpoint: `${tokens.url}/msi/token`, platformSecret: "a-secret", clientId: "mine" };
  expect(await listWith("", platform)).toMatchObject(oneObject);
  expect(tokens.requests[0]).toMatchObject({
    path: "/msi/token?api-version=2019-08-01&resource=https%3A%2F%2Fstorage.azure.com%2F&client_id=mine",
    headers: { "x-identity-header": "a-secret" },
  });
  expect(await listWith("", { metadataUrl: tokens.url })).toMatchObject(oneObject);
  expect(tokens.requests[1]).toMatchObject({
    path: "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F",
    headers: { metadata: "true" },
  });
});

test("a busy token service is asked again", async () => {
  await using tokens = await startTokenServer(server.access.tokens, 3600);
  tokens.failures.push({ status: 503 }, { status: 429 });
  expect(await listWith("", { metadataUrl: tokens.url })).toMatchObject(oneObject);
  expect(tokens.requests).toHaveLength(3);
});

test("a token is renewed five minutes before its end", async () => {
  await using tokens = await startTokenServer(server.access.tokens, 299);
  const objects = openWith("", { metadataUrl: tokens.url });
  await objects.list("", undefined);
  await objects.list("", undefined);
  expect(tokens.requests).toHaveLength(2);
});

test("the error for an identity without the role names the role that it needs", async () => {
  await using tokens = await startTokenServer(new Set(), 3600);
  expect(await errorOf(listWith("", { metadataUrl: tokens.url }))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/The identity needs the role Storage Blob Data Reader on the account/),
  });
});

test("a machine without an identity reads public containers; the error about a private one says what it needs", async () => {
  expect(await errorOf(listWith(""))).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/There are no credentials: give a key or a shared access signature/),
  });
  server.access.isPublic = true;
  expect(await listWith("")).toMatchObject(oneObject);
});

test.for<[Partial<AzureConfig>, RegExp]>([
  [{ connectionString: null }, /needs the name of a storage account, or a connection string/],
  [
    { connectionString: null, accountName: "my.account" },
    /The name of the storage account is my\.account: expected 3 to 24/,
  ],
  [
    { connectionString: "AccountKey=x" },
    /connection string of the storage account cannot be read: expected AccountName and AccountKey/,
  ],
  [
    { connectionString: "BlobEndpoint=ftp://host" },
    /connection string of the storage account cannot be read: expected/,
  ],
])("an account that cannot be read is a configuration error: %o", ([azure, message]) => {
  expect(() => openWith("", {}, azure)).toThrow(
    expect.objectContaining({ setting: "azure", message: expect.stringMatching(message) }),
  );
});
