/** The image's HEALTHCHECK against a server, with variables as orchestrators set them. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { expect, test } from "vitest";

import { repository } from "./container-file.ts";

test.for([
  ["PORT", { HOST: "", AIP_HTTP_PORT: "", SAGEMAKER_BIND_TO_PORT: "" }],
  ["AIP_HTTP_PORT", { PORT: "1", HOST: "127.0.0.1" }],
  ["SAGEMAKER_BIND_TO_PORT", { PORT: "1", AIP_HTTP_PORT: " " }],
] as const)("asks the port of %s; variables without a value count as unset", async ([name, others]) => {
  const paths: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    paths.push(request.url);
    response.end();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const check = spawn(process.execPath, [join(repository, "container/health-check.js")], {
    env: { ...others, [name]: String(port) },
  });
  const [exitCode] = (await once(check, "close")) as [number | null];
  server.close();
  expect([exitCode, paths]).toEqual([0, ["/livez"]]);
});
