import { describe, expect, test } from "vitest";

import { EngineError } from "../../../engine/index.ts";
import { readEvents } from "../../support/read-events.ts";
import { createTestApp } from "../../support/test-app.ts";
import type { TestAppOptions } from "../../support/test-app.ts";
import { wireSchemas } from "../../support/wire-schemas.ts";

const check = wireSchemas("openai-responses.json");

async function respond(body: object, options?: TestAppOptions) {
  const testApp = createTestApp(options);
  const response = await testApp.post("/v1/responses", body);
  const answer = (await response.json()) as Record<string, any>;
  return { ...testApp, response, answer, request: testApp.engine.requests[0] };
}

async function stream(body: object, options?: TestAppOptions) {
  const response = await createTestApp(options).post("/v1/responses", { ...body, stream: true });
  return readEvents(response);
}

test("x", async () => {
  const { answer, response } = await respond({ input: "Hello?", model: "tiny" });
  console.error(JSON.stringify(answer, null, 1), response.status);
  check("Response", answer);
  const events = await stream({ input: "Hello?" });
  console.error(events.map(({ data }) => JSON.stringify(data)).join("\n"));
  for (const { data } of events) check("ResponseStreamEvent", data);
  void EngineError;
  void describe;
});
