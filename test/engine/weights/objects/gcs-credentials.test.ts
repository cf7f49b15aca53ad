import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, expect, onTestFinished, test, vi } from "vitest";

import { createGcsObjects } from "../../../../engine/weights/objects/gcs-objects.ts";
import { resolveCheckpoint } from "../../../../engine/weights/resolve-checkpoint.ts";
import { startGcsServer } from "../../../support/servers/object-stores/gcs-server.ts";
import type { GcsServer } from "../../../support/servers/object-stores/gcs-server.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";

let server: GcsServer;

beforeEach(async () => {
  server = await startGcsServer();
  server.setToken("a-token");
  server.put("bucket", "tiny/config.json", "{}");
  // No credentials of the machine that runs the tests.
  vi.stubEnv("GOOGLE_APPLICATION_CREDENTIALS", "");
  vi.stubEnv("HOME", "/nonexistent");
  vi.stubEnv("METADATA_SERVER_DETECTION", "none");
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await server[Symbol.asyncDispose]();
});

const list = () =>
  createGcsObjects({ bucket: "bucket", prefix: "tiny/" }, { url: server.url, isAnonymous: false }).list("", undefined);
const errorOf = (promise: Promise<unknown>): Promise<unknown> => promise.catch((reason: unknown) => reason);

/** An external account whose token comes from a file and is exchanged at a server of the test. */
async function useCredentials(token: string): Promise<void> {
  const exchange = createServer((request, response) => {
    request.resume();
    response.writeHead(200, { "content-type": "application/json" });
    const issued_token_type = "urn:ietf:params:oauth:token-type:access_token";
    response.end(JSON.stringify({ access_token: token, expires_in: 3600, token_type: "Bearer", issued_token_type }));
  });
  const listening = Promise.withResolvers<void>();
  exchange.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  const folder = await createTemporaryFolder();
  onTestFinished(async () => {
    exchange.closeAllConnections();
    exchange.close();
    await folder[Symbol.asyncDispose]();
  });
  const subjectFile = join(folder.path, "subject");
  await writeFile(subjectFile, "a subject token");
  const file = join(folder.path, "credentials.json");
  const credentials = {
    type: "external_account",
    audience: "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
    subject_token_type: "urn:ietf:params:oauth:token-type:jwt",
    token_url: `http://127.0.0.1:${(exchange.address() as AddressInfo).port}/v1/token`,
    credential_source: { file: subjectFile },
  };
  await writeFile(file, JSON.stringify(credentials));
  vi.stubEnv("GOOGLE_APPLICATION_CREDENTIALS", file);
  // Otherwise the library asks Google for the project.
  vi.stubEnv("GOOGLE_CLOUD_PROJECT", "a-project");
}

test("the credentials that GOOGLE_APPLICATION_CREDENTIALS names are sent", async () => {
  await useCredentials("a-token");
  expect(await list()).toMatchObject({ files: [{ name: "config.json", byteLength: 2 }] });
});

test("the error for an account without the rights names the role that it needs", async () => {
  await useCredentials("another");
  expect(await errorOf(list())).toMatchObject({
    code: "invalid_configuration",
    message:
      "gs://bucket/tiny/ cannot be listed: rejected (The account does not have storage.objects.list access to the bucket., status 403). " +
      "The service account needs storage.objects.list and storage.objects.get (role Storage Object Viewer).",
  });
});

test("without credentials, a public bucket is read, and the error of a private one says how to set them", async () => {
  expect(await errorOf(list())).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(
      /status 401\)\. There are no Google credentials: set GOOGLE_APPLICATION_CREDENTIALS/,
    ),
  });
  server.setToken(null);
  expect((await list()).files).toHaveLength(1);
});

test("a file of credentials that does not exist is named", async () => {
  vi.stubEnv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json");
  expect(await errorOf(list())).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringMatching(/^Google's credentials cannot be used: .*\/nonexistent\/key.json/),
  });
});

// The check value of CRC-32C: https://reveng.sourceforge.io/crc-catalogue/all.htm#crc.cat.crc-32-iscsi.
test.for([
  ["123456789", "4waSgw==", "succeeds"],
  ["123456780", "4waSgw==", "fails"],
])("a composite object is verified by its CRC-32C: %s %s", async ([content, crc32c, outcome]) => {
  server.setToken(null);
  await using folder = await createTemporaryFolder();
  server.put("bucket", "tiny/model.safetensors", content!).md5 = null;
  server.crc32c.set("tiny/model.safetensors", crc32c!);
  const resolved = resolveCheckpoint("gs://bucket/tiny", { cacheFolder: folder.path, gcsEmulatorUrl: server.url });
  if (outcome === "succeeds") return void (await resolved);
  expect(await errorOf(resolved)).toMatchObject({
    code: "invalid_checkpoint",
    message: expect.stringContaining("do not have the crc32c 4waSgw=="),
  });
});

test("a server that is not Google's is named", async () => {
  const other = createServer((_, response) => void response.end("<html>hello</html>"));
  const listening = Promise.withResolvers<void>();
  other.listen(0, "127.0.0.1", listening.resolve);
  await listening.promise;
  onTestFinished(() => {
    other.closeAllConnections();
    other.close();
  });
  const url = `http://127.0.0.1:${(other.address() as AddressInfo).port}`;
  expect(
    await errorOf(resolveCheckpoint("gs://bucket/tiny", { cacheFolder: "/nonexistent", gcsEmulatorUrl: url })),
  ).toMatchObject({
    code: "invalid_configuration",
    message: expect.stringContaining("is not one of Google Cloud Storage; check the address of the emulator"),
  });
});
