import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";

import { readRepository } from "../../support/checkpoints/hub-repository.ts";
import { startHubServer } from "../../support/servers/hub-server.ts";
import type { HubServer } from "../../support/servers/hub-server.ts";
import { startCli } from "../../support/service/cli-process.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

let hub: HubServer;

beforeAll(async () => {
  hub = await startHubServer();
});

afterAll(() => hub.stop());

const folderOf = (path: string): string => fileURLToPath(new URL(`../../../${path}`, import.meta.url));

async function complete(port: unknown, body: object): Promise<{ readonly model: string; readonly choices: unknown[] }> {
  const response = await fetch(`http://127.0.0.1:${String(port)}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ max_tokens: 2, ...body }),
  });
  expect(response.status).toBe(200);
  return (await response.json()) as { readonly model: string; readonly choices: unknown[] };
}

test("a gated repository of the hub is served, and again without a connection", async () => {
  hub.repositories.set("org/shapes", { files: await readRepository(folderOf("models/fovea-shapes")), isGated: true });
  hub.tokens.add("hf_secret");
  await using folder = await createTemporaryFolder();
  const settings = { HOST: "127.0.0.1", PORT: "0", MODEL: "org/shapes", CACHE_FOLDER: folder.path };
  const environment = { ...settings, HF_HOME: folder.path, HF_ENDPOINT: hub.endpoint };
  {
    await using cli = startCli([], environment);
    const { reason } = await cli.waitForLog("Cannot serve the model org/shapes.");
    expect(reason).toContain("org/shapes is gated: accept its conditions");
  }
  {
    await using cli = startCli([], { ...environment, HF_TOKEN: "hf_secret" });
    const { port } = await cli.waitForLog("Listening.");
    await cli.waitForLog("Ready.");
    expect(cli.stdout()).toMatch(/"percent":100,"amount":"[\d.]+\/[\d.]+ MiB"/);
    expect(cli.stdout()).not.toContain("hf_secret");
    expect(await complete(port, { prompt: "Hello" })).toMatchObject({ model: "org/shapes" });
  }
  await using cli = startCli([], { ...environment, HF_HUB_OFFLINE: "1", HF_ENDPOINT: "http://127.0.0.1:1" });
  await cli.waitForLog("Ready.");
});

test("an export whose weights are beside its graph is served from the links of the cache", async () => {
  const files = await readRepository(folderOf("test/fixtures/goldens/onnx-exports/smolvlm"));
  hub.repositories.set("org/export", { files });
  await using folder = await createTemporaryFolder();
  await using cli = startCli([], {
    HOST: "127.0.0.1",
    PORT: "0",
    MODEL: "hf://org/export@main",
    CACHE_FOLDER: folder.path,
    HF_HOME: folder.path,
    HF_ENDPOINT: hub.endpoint,
  });
  const { port } = await cli.waitForLog("Listening.");
  await cli.waitForLog("Ready.");
  expect(await complete(port, { prompt: "Hello" })).toMatchObject({ model: "org/export" });
});
