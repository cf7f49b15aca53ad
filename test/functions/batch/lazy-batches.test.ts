/** The end of the work on batches, beside a service that drains. */
import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";

import { LazyBatches } from "../../../functions/batch/lazy-batches.ts";
import { WorkWindow } from "../../../functions/batch/work-window.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createMetrics } from "../../../functions/metrics.ts";
import { loadConfig } from "../../../functions/settings/config.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

/** Time to store the state, which the wait for lines must not use up. */
const STOP_MS = 1;

test("a stop waits for the lines that the grace lets finish, and then for their results", async () => {
  await using folder = await createTemporaryFolder();
  const { promise: held, resolve: answer } = Promise.withResolvers<void>();
  const { service, engine, bodies } = createTestApp({ script: [held, "x"] });
  const window = new WorkWindow(1);
  const lazy = new LazyBatches(
    {
      config: loadConfig({ BATCH_STORE: folder.path, SERVED_MODEL_NAME: "tiny" }),
      service,
      engine,
      metrics: createMetrics(service, bodies, "tiny"),
      logger: createLogger({ level: "error", write() {} }),
      window: () => window,
      createS3Client: () => Promise.reject(new Error("There is no S3.")),
    },
    STOP_MS,
  );
  await lazy.start();
  const batches = await lazy.load();
  const inputFileId = batches.files.newId();
  const line = { custom_id: "a", method: "POST", url: "/v1/completions", body: { prompt: "a" } };
  const numBytes = await batches.files.receive(inputFileId, Readable.from([Buffer.from(JSON.stringify(line))]));
  await batches.files.publish("", { id: inputFileId, numBytes, filename: "in.jsonl", purpose: "batch" });
  const created = await batches.create("", { inputFileId, endpoint: "/v1/completions", metadata: null });
  if (created.kind !== "created") throw new Error(created.kind);
  await expect.poll(() => engine.requests.length).toBe(1);

  const ends: string[] = [];
  const stopping = lazy.stop(60_000).then(() => ends.push("stopped"));
  await sleep(20 * STOP_MS);
  ends.push("answered");
  answer();
  await stopping;
  expect(ends).toEqual(["answered", "stopped"]);
  expect((await batches.find("", created.batch.id))?.request_counts.completed).toBe(1);
  await lazy.close();
});
