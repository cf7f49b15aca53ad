import { readFileSync } from "node:fs";
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { settingDescriptions } from "../../functions/settings/config.ts";
import { attackClasses } from "./attack-classes.ts";
import { bodyRoutes } from "./generators/bodies.ts";
import { nameOf, routes } from "./generators/routes.ts";

test("exactly the routes of the application are attacked", () => {
  const attacked = new Set(attackClasses.flatMap((attackClass) => attackClass.routes));
  expect([...attacked].sort()).toEqual([...new Set(routes.map(nameOf))].sort());
});

test("every route that takes a body is attacked with bodies", () => {
  const withoutBody = ["POST /v1/batches/:batch/cancel", "POST /predictions/:prediction/cancel", "POST /ping"];
  const asForm = ["POST /v1/files"];
  const asJson = bodyRoutes.map(({ target }) => `POST ${target}`);
  const posts = routes.map(nameOf).filter((name) => name.startsWith("POST "));
  expect([...withoutBody, ...asForm, ...asJson].sort()).toEqual(posts.sort());
});

test.for(bodyRoutes)("bodies for $target eventually contain every field of its schema", ({ bodies, fields }) => {
  const seen = new Set(
    fc.sample(bodies, { seed: 1, numRuns: 3000 }).flatMap(({ entries }) => entries.map(([name]) => name)),
  );
  expect(fields.filter((field) => !seen.has(field))).toEqual([]);
});

const policy = readFileSync(new URL("../../SECURITY.md", import.meta.url), "utf8");

test("SECURITY.md has a row for every class, with its number of cases", () => {
  const rows = [...policy.matchAll(/^\| `(\w+)` \| (\d+) /gm)].map(([, name, count]) => [name, Number(count)]);
  const counts = attackClasses.map(({ name, numCases }) => [name, numCases]);
  expect(Object.fromEntries(rows)).toEqual(Object.fromEntries(counts));
});

test("SECURITY.md names only existing settings", () => {
  const known = new Set([...settingDescriptions.map(({ name }) => name), "FOVEA_ATTACK_SEED"]);
  const named = [...policy.matchAll(/`([A-Z]+_[A-Z_]+)[`=]/g)].map(([, name]) => name!);
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((name) => !known.has(name))).toEqual([]);
});
