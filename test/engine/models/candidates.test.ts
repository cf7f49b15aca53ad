/** The candidates of rows of logits. */
import * as fc from "fast-check";
import { expect, test } from "vitest";

import { numCandidatesOf } from "../../../engine/models/decoder-graph/candidates.ts";
import { Session } from "../../../engine/runtime/session.ts";
import { bindTail, buildTail } from "../../gpu/candidates-of-rows.ts";
import { createRandom } from "../../gpu/numbers.ts";

const VOCAB_SIZE = 16_384;
const numCandidates = numCandidatesOf(VOCAB_SIZE);

/** Few different logits, so that many are equal, also those of the last candidates. */
const row = fc.record({ seed: fc.nat(), numValues: fc.constantFrom(2, 20, 300, 1e6), isClustered: fc.boolean() });

test("every token above the last candidate is a candidate, also where the likeliest are neighbours", () => {
  using session = Session.fromBytes(buildTail(VOCAB_SIZE).encode(), { device: "cpu", deviceId: 0, numThreads: 1 });
  fc.assert(
    fc.property(row, ({ seed, numValues, isClustered }) => {
      const random = createRandom(seed);
      const values = Float32Array.from({ length: VOCAB_SIZE }, () => Math.floor(random() * numValues) / numValues);
      if (isClustered) values.subarray(seed % 16_000, (seed % 16_000) + 100).fill(2);
      using tail = bindTail(session, VOCAB_SIZE, values, Float32Array.of(1));
      tail.compute();
      tail.keep();
      const candidates = tail.logits.deferred(0).candidatesOf(0);
      const sorted = values.toSorted().reverse().subarray(0, numCandidates);
      expect(candidates.values).toEqual(sorted);
      expect(Float32Array.from(candidates.tokenIds, (id) => values[id]!)).toEqual(sorted);
      expect(new Set(candidates.tokenIds).size).toBe(numCandidates);
    }),
    { numRuns: 100 },
  );
});
