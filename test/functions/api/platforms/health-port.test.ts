/**
 * RunPod's load balancer as the caller of the container, with a port of its own for health checks. The contract, read
 * on 2026-11-22: https://docs.runpod.io/serverless/load-balancing/overview (PORT, PORT_HEALTH, 200, 204, others).
 */
import { expect, test } from "vitest";

import { serve } from "../../../../functions/serve.ts";
import { freePort } from "../../../support/servers/free-port.ts";
import { chatBody } from "../../../support/service/test-app.ts";
import { testDataHome } from "../../../support/service/test-data-home.ts";

test("PORT_HEALTH answers 204 while the model loads, then 200, and no requests; it closes with the service", async () => {
  const port = await freePort();
  const service = await serve({
    HOST: "127.0.0.1",
    PORT: 0,
    PORT_HEALTH: port,
    HEALTH_INITIALIZING_CODE: 204,
    BATCH_STORE: testDataHome,
  });
  const origin = `http://127.0.0.1:${port}`;
  expect((await fetch(`${origin}/ping`)).status).toBe(204);
  await service.ready;
  expect((await fetch(`${origin}/ping`)).status).toBe(200);
  expect((await fetch(`${origin}/metrics`)).status).toBe(200);
  expect((await fetch(`${origin}/v1/models`)).status).toBe(404);
  const answered = await fetch(`http://127.0.0.1:${service.port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...chatBody, max_tokens: 2 }),
  });
  expect(answered.status).toBe(200);
  await service.close();
  await expect(fetch(`${origin}/ping`)).rejects.toThrow("fetch failed");
});
