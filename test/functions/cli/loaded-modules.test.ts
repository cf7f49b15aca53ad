import { expect, test } from "vitest";

import { startCli } from "../../support/service/cli-process.ts";

const logImports = new URL("../../support/service/log-imports.ts", import.meta.url).href;

/** URLs of the modules that all threads load until the model is ready. */
async function loadedModules(environment: Readonly<Record<string, string>> = {}): Promise<readonly string[]> {
  const NODE_OPTIONS = `--import=${logImports}`;
  await using cli = startCli([], { HOST: "127.0.0.1", PORT: "0", NODE_OPTIONS, ...environment });
  await cli.waitForLog("Ready.");
  return [...cli.stderr().matchAll(/^loads (\S+)$/gm)].map(([, url]) => url!);
}

function packagesOf(urls: readonly string[]): ReadonlySet<string> {
  return new Set(urls.flatMap((url) => /.*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1] ?? []));
}

test("a start without settings loads no client of a queue, a store or a web server, and no other models", async () => {
  const modules = await loadedModules();
  const packages = packagesOf(modules);
  expect(packages).toContain("hono");
  const clients = ["undici", "ioredis", "bullmq", "rabbitmq-client", "google-auth-library", "@aws-sdk/client-s3"];
  expect(clients.filter((name) => packages.has(name))).toEqual([]);
  const definitions = modules.flatMap((url) => /\/engine\/models\/([^/]+)\/definition\.ts$/.exec(url)?.[1] ?? []);
  // LLaVA's text model is Llama.
  expect(new Set(definitions)).toEqual(new Set(["llava", "llama"]));
});
