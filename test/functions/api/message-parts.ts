/** Parts of bodies of `/v1/messages`, and requests to it. */
import { expect } from "vitest";

import { wireSchemas } from "../../support/requests/wire-schemas.ts";
import { createTestApp } from "../../support/service/test-app.ts";
import type { TestAppOptions } from "../../support/service/test-app.ts";

export const path = "/v1/messages";
export const check = wireSchemas("anthropic-messages.json");

export const hello = { max_tokens: 50, messages: [{ role: "user", content: "Hello?" }] };
export const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "AAAA" } };
export const weather = {
  name: "get_weather",
  description: "The weather in a city.",
  input_schema: { type: "object", properties: { city: { type: "string" } } },
};

/** The answer is checked by the published schema. */
export async function ask(body: object, options?: TestAppOptions) {
  const testApp = createTestApp(options);
  const response = await testApp.post(path, body, { "anthropic-version": "2023-06-01" });
  const answer = (await response.json()) as Record<string, unknown>;
  expect(response.status).toBe(200);
  check("Message", answer);
  return { ...testApp, response, answer, request: testApp.engine.requests.at(0)! };
}
