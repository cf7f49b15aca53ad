/** The image's HEALTHCHECK against a server, with variables and flags as orchestrators set them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";

import { createTemporaryFolder } from "../support/temporary-folder.ts";
import { repository } from "./container-file.ts";

test.for([
  ["PORT", { HOST: "", AIP_HTTP_PORT: "", SAGEMAKER_BIND_TO_PORT: "" }],
  ["AIP_HTTP_PORT", { PORT: "1", HOST: "127.0.0.1" }],
  ["SAGEMAKER_BIND_TO_PORT", { PORT: "1", AIP_HTTP_PORT: " " }],
] as const)("asks the port of %s; variables without a value count as unset", async ([name, others]) => {
  expect(await checkWith((port) => ({ environment: { ...others, [name]: port } }))).toEqual([0, ["/livez"]]);
});

test.for(["--port", "--port="])("asks the port of %s, which comes before the variable", async (flag) => {
  const words = (port: string) => (flag.endsWith("=") ? [`${flag}${port}`] : [flag, port]);
  const checked = await checkWith((port) => ({
    environment: { PORT: "1" },
    commandLine: ["node", "main.js", "serve", "--port", "2", ...words(port), "--host", "0.0.0.0"],
  }));
  expect(checked).toEqual([0, ["/livez"]]);
});

test("asks :: at the loopback address of IPv6, which may be the only one", async () => {
  const checked = await checkWith((port) => ({ environment: { PORT: port, HOST: "::" } }), "::1");
  expect(checked).toEqual([0, ["/livez"]]);
});

test.for([
  [0, ["node", "/app/functions/cli/main.js", "batch", "--input", "in.jsonl", "--output", "out.jsonl"]],
  [0, ["/sbin/docker-init", "--", "node", "/app/functions/cli/main.js", "check", "--run"]],
  [1, ["node", "/app/functions/cli/main.js", "worker"]],
  [1, ["node", "/app/functions/cli/main.js", "--model", "batch"]],
] as const)("ends with %i without a server for the command line %o", async ([exitCode, commandLine]) => {
  expect(await checkWith(() => ({ environment: { PORT: "1" }, commandLine }))).toEqual([exitCode, []]);
});

interface Container {
  readonly environment: Readonly<Record<string, string>>;
  readonly commandLine?: readonly string[];
}

async function checkWith(containerOf: (port: string) => Container, host = "127.0.0.1") {
  const paths: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    paths.push(request.url);
    response.end();
  }).listen(0, host);
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const { environment, commandLine = ["node"] } = containerOf(String(port));
  await using folder = await createTemporaryFolder();
  const path = join(folder.path, "cmdline");
  await writeFile(path, commandLine.map((word) => `${word}\0`).join(""));
  const check = spawn(process.execPath, [join(repository, "container/health-check.js"), path], { env: environment });
  const [exitCode] = (await once(check, "close")) as [number | null];
  server.close();
  return [exitCode, paths];
}
