/** Configurations that a model definition rejects. */
import { expect, test } from "vitest";

import { EngineError } from "../../../engine/contract/errors.ts";
import { loadShippedDefinition } from "../../../engine/models/registry.ts";

export type RefusedConfiguration = readonly [config: unknown, message: string];

/** Each is rejected as unsupported, with an error that contains the message. */
export function testRefusals(refusals: readonly RefusedConfiguration[]): void {
  const named = refusals.map(([config, message]) => ({ config, message }));
  test.for(named)("rejected: $message", async ({ config, message }) => {
    const configured = loadShippedDefinition(config).then((definition) => definition.configure(config));
    await expect(configured).rejects.toMatchObject({
      code: "unsupported_model",
      message: expect.stringContaining(message),
    });
  });
}

/** The error that the action throws; other exceptions pass through. */
export function errorOf(action: () => unknown): EngineError {
  try {
    action();
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}
