import { readFile, readdir } from "node:fs/promises";
import { expect, test } from "vitest";

import { azureAccount, azureKey, startAzureServer } from "../../support/servers/object-stores/azure-server.ts";
import { startGcsServer } from "../../support/servers/object-stores/gcs-server.ts";
import type { StoreServer } from "../../support/servers/object-stores/store-server.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const checkpoint = new URL("../../../models/fovea-shapes/", import.meta.url);
const azureConnection = (url: string, key: string): string =>
  `AccountName=${azureAccount};AccountKey=${key};BlobEndpoint=${url}/${azureAccount}`;

async function upload(server: StoreServer): Promise<void> {
  const names = (await readdir(checkpoint)).filter((name) => /\.(json|jinja|safetensors)$/.test(name));
  for (const name of names) server.put("models", `v1/tiny/${name}`, await readFile(new URL(name, checkpoint)));
}

async function check(environment: Readonly<Record<string, string>>) {
  await using cacheFolder = await createTemporaryFolder();
  await using cli = startCli(["check"], { CACHE_FOLDER: cacheFolder.path, ...environment });
  return { exitCode: await cli.exitCode, stdout: cli.stdout(), stderr: cli.stderr() };
}

test("settings name a checkpoint on Google Cloud Storage, and check downloads and describes it", async () => {
  await using server = await startGcsServer();
  await upload(server);
  const { exitCode, stdout } = await check({ MODEL: "gs://models/v1/tiny", STORAGE_EMULATOR_HOST: server.url });
  expect(stdout).toMatch(/model +gs:\/\/models\/v1\/tiny/);
  expect(exitCode).toBe(0);
});

test("settings name a checkpoint on Azure, and a wrong key ends the start with what to check", async () => {
  await using server = await startAzureServer();
  await upload(server);
  const MODEL = "az://models/v1/tiny";
  const right = await check({ MODEL, AZURE_STORAGE_CONNECTION_STRING: azureConnection(server.url, azureKey) });
  expect(right.stdout).toMatch(/model +az:\/\/models\/v1\/tiny/);
  expect(right.stdout).not.toContain(azureKey);
  expect(right.exitCode).toBe(0);
  const wrong = await check({ MODEL, AZURE_STORAGE_CONNECTION_STRING: azureConnection(server.url, "d3Jvbmc=") });
  expect(wrong.stderr).toMatch(/cannot be listed: rejected .*Check the key of the account testaccount/);
  expect(wrong.stderr).not.toContain("d3Jvbmc=");
  expect(wrong.exitCode).not.toBe(0);
});

test.for(["SIGTERM", "SIGINT"] as const)(
  "a check that %s ends during a download leaves no file of it",
  async (signal) => {
    await using server = await startGcsServer();
    await upload(server);
    const isUnderWay = Promise.withResolvers<void>();
    const isOver = Promise.withResolvers<void>();
    server.disturb = async (entry) => {
      if (!entry.includes("model.safetensors")) return;
      isUnderWay.resolve();
      await isOver.promise;
    };
    await using cacheFolder = await createTemporaryFolder();
    const environment = { MODEL: "gs://models/v1/tiny", STORAGE_EMULATOR_HOST: server.url };
    await using cli = startCli(["check"], { CACHE_FOLDER: cacheFolder.path, ...environment });
    await isUnderWay.promise;
    const partial = async () =>
      (await readdir(cacheFolder.path, { recursive: true })).filter((name) => name.endsWith(".partial"));
    expect(await partial()).not.toEqual([]);
    cli.child.kill(signal);
    await cli.exitCode;
    isOver.resolve();
    expect([cli.child.signalCode, cli.child.exitCode]).toEqual([signal, null]);
    expect(await partial()).toEqual([]);
  },
);
