import * as fc from "fast-check";
import { expect, test } from "vitest";

import { attackClasses } from "./attack-classes.ts";
import { bodyRoutes } from "./generators/bodies.ts";
import { nameOf, routes } from "./generators/routes.ts";

test("every route of the application is attacked, and only such", () => {
  const attacked = new Set(attackClasses.flatMap((attackClass) => attackClass.routes));
  expect([...attacked].sort()).toEqual([...new Set(routes.map(nameOf))].sort());
});

test("every route that takes a body has bodies made for it", () => {
  const withoutBody = ["POST /v1/batches/:batch/cancel", "POST /ping"];
  const asForm = ["POST /v1/files"];
  const asJson = bodyRoutes.map(({ target }) => `POST ${target}`);
  const posts = routes.map(nameOf).filter((name) => name.startsWith("POST "));
  expect([...withoutBody, ...asForm, ...asJson].sort()).toEqual(posts.sort());
});

test.for(bodyRoutes)("bodies for $target have every field of its schema sooner or later", ({ bodies, fields }) => {
  const seen = new Set(
    fc.sample(bodies, { seed: 1, numRuns: 3000 }).flatMap(({ entries }) => entries.map(([name]) => name)),
  );
  expect(fields.filter((field) => !seen.has(field))).toEqual([]);
});
