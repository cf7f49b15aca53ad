/** Requests with videos and documents to an app without a model: what the engine gets, and how they are rejected. */
import { expect } from "vitest";

import type { GenerationRequest } from "../../../engine/index.ts";
import { createTestApp } from "./test-app.ts";

export interface ErrorAnswer {
  readonly error: { readonly message: string; readonly param: string | null; readonly code: string };
}

/** A body with one message of these parts. */
export function asked(...content: readonly unknown[]): object {
  return { messages: [{ role: "user", content }] };
}

/** The engine's request for a body. */
export async function requestOf(
  body: object,
  path = "/v1/chat/completions",
  config: object = {},
): Promise<GenerationRequest | undefined> {
  const { post, engine } = createTestApp({ config });
  const response = await post(path, body);
  expect([response.status, await response.text()]).toEqual([200, expect.any(String)]);
  return engine.requests.at(0);
}

export async function errorOf(body: object, path = "/v1/chat/completions"): Promise<ErrorAnswer["error"]> {
  const { post, engine } = createTestApp();
  const response = await post(path, body);
  expect(response.status).toBe(400);
  expect(engine.requests).toHaveLength(0);
  return ((await response.json()) as ErrorAnswer).error;
}
