import * as fc from "fast-check";
import { expect, test } from "vitest";

import { GraphBuilder } from "../../../engine/graph/graph-builder.ts";
import { relu } from "../../../engine/graph/standard-ops.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { ViewedPool, type PooledRows } from "../../../engine/vision/feature-pool.ts";

function createSession(): Session {
  const graph = new GraphBuilder("any");
  graph.output(relu(graph, "y", graph.input("x", "float32", [1])));
  return Session.fromBytes(graph.encode(), { device: "cpu", deviceId: 0, numThreads: 1 });
}

test("images that come and go keep their own rows, and leave all of the pool free", () => {
  using session = createSession();
  const actions = fc.array(fc.record({ numRows: fc.integer({ min: 1, max: 9 }), releases: fc.nat(7) }), {
    maxLength: 60,
  });
  fc.assert(
    fc.property(actions, fc.constantFrom(1, 16, 24, 64), (steps, width) => {
      using pool = new ViewedPool(session, { width, numRows: 64, maxRunRows: 8 });
      const held: { readonly rows: PooledRows; readonly value: number }[] = [];
      const check = ({ rows, value }: (typeof held)[number]): void => {
        using view = pool.view(rows);
        expect(view.data.every((number) => number === value)).toBe(true);
      };
      steps.forEach(({ numRows, releases }, index) => {
        const rows = pool.take(numRows);
        if (rows !== null) {
          using view = pool.view(rows);
          view.copyFrom(new Float32Array(numRows * width).fill(index + 1));
          held.push({ rows, value: index + 1 });
        }
        // Kernels of a GPU need tensors that begin at multiples of 256 bytes.
        expect(held.filter((image) => (image.rows.firstRow * width * 4) % 256 !== 0)).toEqual([]);
        expect(pool.placeForRun(new Float32Array(8 * width).fill(-1))).toBeGreaterThanOrEqual(64);
        held.forEach(check);
        for (const { rows: released } of held.splice(0, releases % (held.length + 1))) pool.release(released);
      });
      for (const { rows } of held) pool.release(rows);
      expect(pool.take(64)).not.toBeNull();
      expect(pool.take(1)).toBeNull();
    }),
    { numRuns: 60 },
  );
});

test("rows that are released twice are noticed", () => {
  using session = createSession();
  using pool = new ViewedPool(session, { width: 64, numRows: 8, maxRunRows: 1 });
  const rows = pool.take(3)!;
  pool.release(rows);
  expect(() => pool.release(rows)).toThrow("released twice");
});
