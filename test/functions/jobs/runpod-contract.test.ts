import { afterAll, expect, test } from "vitest";

import { createRunpodJobSource } from "../../../functions/jobs/sources/runpod-job-source.ts";
import { createLogger } from "../../../functions/logger.ts";
import { LEASE_MS, testJobSource } from "../../contracts/job-source.ts";
import { startRunpodServer } from "../../support/servers/runpod-server.ts";
import type { RunpodServer } from "../../support/servers/runpod-server.ts";

const servers: RunpodServer[] = [];

afterAll(async () => {
  await Promise.all(servers.map((server) => server.stop()));
});

testJobSource(
  "RunPod",
  async () => {
    const server = await startRunpodServer({ workerTimeoutMs: LEASE_MS });
    servers.push(server);
    return {
      open: async () =>
        createRunpodJobSource({
          worker: server.worker(),
          pingMs: 200,
          listModels: () => ({}),
          logger: createLogger({ level: "debug", write: () => {} }),
        }),
      async send(body) {
        server.run(body);
      },
      deadLetters: async () =>
        server
          .jobs()
          .filter(({ status }) => status === "FAILED")
          .map(({ input }) => input),
    };
  },
  { hasHeaders: false, releasesTo: "worker", expiresWith: "worker" },
);

test("the source of RunPod makes no call that RunPod's SDK would not make", () => {
  expect(servers.flatMap(({ calls }) => calls).length).toBeGreaterThan(0);
  expect(servers.flatMap(({ violations }) => violations)).toEqual([]);
});
