/** The page of the HTTP API names every route with its access, and only fields that requests have. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { MAX_COUNTED_TOKENS } from "../../engine/contract/default-limits.ts";
import { MAX_OVERTAKES } from "../../engine/scheduler/waiting-queue.ts";
import { chatCompletionRequest } from "../../functions/generation/schemas/chat-completion-request.ts";
import { completionRequest } from "../../functions/generation/schemas/completion-request.ts";
import { createTestApp } from "../support/service/test-app.ts";

const page = readFileSync(fileURLToPath(new URL("../../docs/http-api.md", import.meta.url)), "utf8");

interface Endpoint {
  readonly name: string;
  readonly needsKey: boolean;
}

const endpoints = [...page.matchAll(/^\| (`[A-Z]+ \/[^|]*`) \| (yes|no) \|/gm)].flatMap(([, names = "", key]) =>
  [...names.matchAll(/`([^`]+)`/g)].map(([, name = ""]): Endpoint => ({ name, needsKey: key === "yes" })),
);

test("the page lists the routes of the application, without those of the web page", () => {
  const routes = createTestApp()
    .app.routes.filter(({ method, path }) => method !== "ALL" && !path.startsWith("/playground"))
    .map(({ method, path }) => `${method} ${path.replaceAll(/:\w+(\{[^}]*\})?/g, "{id}")}`);
  expect(endpoints.map(({ name }) => name).toSorted()).toEqual(routes.toSorted());
});

test("the page says which endpoints need a key", async () => {
  const { app } = createTestApp({ config: { apiKeys: ["key"] } });
  for (const { name, needsKey } of endpoints) {
    const [method = "", path = ""] = name.split(" ");
    const response = await app.request(path.replaceAll("{id}", "x"), { method });
    expect([name, response.status === 401]).toEqual([name, needsKey]);
  }
});

test("the page's fields exist", () => {
  const section = page.slice(page.indexOf("## Fields of"), page.indexOf("## Images in"));
  const fields = [...section.matchAll(/^\| `(\w+)` \| ([^|]*) \|/gm)];
  expect(fields.length).toBeGreaterThan(5);
  const namesOf = (other: string): string[] =>
    fields.flatMap(([, field = "", type = ""]) => (type.includes(other) ? [] : [field]));
  expect(Object.keys(chatCompletionRequest.shape)).toEqual(expect.arrayContaining(namesOf("text completions")));
  expect(Object.keys(completionRequest.shape)).toEqual(expect.arrayContaining(namesOf("chat")));
});

test("the page's numbers are the constants", () => {
  expect(page).toContain(`up to ${MAX_COUNTED_TOKENS.toLocaleString("en-US")} tokens`);
  expect(page).toContain(`after ${MAX_OVERTAKES} requests`);
  expect(page).toContain(`one start in ${MAX_OVERTAKES + 1}`);
});
