/** Lines of batches stand behind requests that somebody waits for. */
import { expect, test } from "vitest";

import { defaultVideoLimits } from "../../../engine/contract/default-limits.ts";
import { prepareLine } from "../../../functions/batch/answer-line.ts";
import type { AnswerDependencies } from "../../../functions/batch/answer-line.ts";
import { parseBatchLine } from "../../../functions/batch/batch-line.ts";
import { createLogger } from "../../../functions/logger.ts";
import { createMetrics } from "../../../functions/metrics.ts";
import { createTestApp } from "../../support/service/test-app.ts";

async function prioritiesOf(
  schedulingPolicy: AnswerDependencies["config"]["schedulingPolicy"],
  fields: object,
): Promise<{ readonly line: number | undefined; readonly request: number | undefined }> {
  const { service, engine, bodies, post } = createTestApp({ config: { schedulingPolicy } });
  await post("/v1/completions", { prompt: "a" });
  const body = { prompt: "a", ...fields };
  const text = JSON.stringify({ custom_id: "a", method: "POST", url: "/v1/completions", body });
  const line = parseBatchLine({ lineNumber: 1, text, problem: null });
  if (line.kind !== "good") throw new Error(line.message);
  const config = {
    schedulingPolicy,
    inlineImages: "completions" as const,
    maxLogprobs: 20,
    defaultExtraArguments: {},
    servedModelNames: ["tiny"],
    engine: { maxNumWaiting: 256, videoLimits: defaultVideoLimits },
    videoSampling: {},
  };
  const logger = createLogger({ level: "error", write: () => {} });
  const metrics = createMetrics(service, bodies, "tiny");
  const answer = await prepareLine(line, { service, engine, metrics, logger, tenant: "", config }).answer();
  expect(answer).toMatchObject({ kind: "answered", response: { statusCode: 200 } });
  return { request: engine.requests.at(0)?.priority, line: engine.requests.at(1)?.priority };
}

test.for(["fcfs", "priority"] as const)("a line has a lower priority than a request (%s)", async (policy) => {
  const { line, request } = await prioritiesOf(policy, {});
  expect(request).toBe(0);
  expect(line).toBeGreaterThan(0);
});

test("a line cannot join the requests unless priorities are allowed", async () => {
  expect((await prioritiesOf("fcfs", { priority: 0 })).line).toBeGreaterThan(0);
  expect((await prioritiesOf("priority", { priority: 0 })).line).toBe(0);
});
