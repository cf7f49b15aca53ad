/** The routes that count the tokens of a prompt, with its images, as the route that generates for it would have them. */
import type { Handler } from "hono";

import type { AppDependencies } from "../app-dependencies.ts";
import type { CommonFields, PromptKind } from "../generation/generation-kind.ts";
import type { AppEnvironment } from "../http/request-trace.ts";
import { admittedRoute, onlyRequestOf, promptsOf } from "./admitted-route.ts";

export function tokenCountRoute<Fields extends CommonFields>(
  kind: PromptKind<Fields>,
  dependencies: AppDependencies,
  toAnswer: (numTokens: number) => object,
): Handler<AppEnvironment> {
  return admittedRoute(dependencies, async (request) => {
    const { engine, signal } = request.admission;
    const prompt = onlyRequestOf(promptsOf(kind, request, dependencies));
    const { tokenIds } = await engine.render(prompt, { signal, exceedsModelLen: true });
    return toAnswer(tokenIds.length);
  });
}
