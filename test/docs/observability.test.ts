import { expect, test } from "vitest";

import dashboard from "../../examples/grafana-dashboard.json" with { type: "json" };
import { startService } from "../support/service/running-service.ts";

const queries = dashboard.panels.flatMap(({ title, targets }) => targets.map(({ expr }) => ({ title, expr })));

test("every metric of the dashboard is served, with the labels that select and group it", async () => {
  await using service = await startService();
  const completion = { prompt: "A large red", max_tokens: 2 };
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(completion) };
  expect((await fetch(`${service.baseUrl}/v1/completions`, options)).status).toBe(200);
  const metrics = await (await fetch(`${service.baseUrl}/metrics`)).text();

  for (const { title, expr } of queries) {
    const groups = [...expr.matchAll(/by \(([^)]+)\)/g)].flatMap(([, labels]) => labels!.split(", "));
    const names = [...expr.matchAll(/[a-z]+[:_][a-z0-9_]+(?=\{)/g)].map(([name]) => name);
    expect(names.length, title).toBeGreaterThan(0);
    for (const name of names) {
      const sample = new RegExp(`^${name}\\{([^}]*)\\}`, "m").exec(metrics);
      expect(sample?.[1], `${title}: ${name}`).toContain("model_name=");
      // Prometheus itself adds job and instance.
      for (const label of groups.filter((group) => group !== "instance")) {
        expect(sample![1], `${title}: ${name}`).toMatch(new RegExp(`(^|,)${label}="`));
      }
    }
  }
});

test("no two panels of the dashboard overlap", () => {
  const cells = dashboard.panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, cell) => `${x + (cell % w)},${y + Math.floor(cell / w)}`),
  );
  expect(new Set(cells).size).toBe(cells.length);
  expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
});
