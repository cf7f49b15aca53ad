/** Tokens that are drawn from the candidates of a session, against those of the whole rows. */
import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import { createSamplingParams, isGreedy } from "../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../engine/contract/sampling-params.ts";
import { Session } from "../../engine/runtime/session.ts";
import { inverseTemperature } from "../../engine/sampling/sampler.ts";
import { sampleFrom, sampleOnce } from "../engine/sampling/create-sampler.ts";
import { testDevices } from "../support/devices/test-devices.ts";
import { bindTail, buildTail } from "./candidates-of-rows.ts";
import { createRandom, rounded } from "./numbers.ts";
import type { FloatType } from "./numbers.ts";

const params = fc.record({
  temperature: fc.constantFrom(0, 0.3, 0.8, 1, 1.4),
  topK: fc.constantFrom(0, 0, 1, 8, 64, 100),
  topP: fc.constantFrom(1, 1, 0.4, 0.95),
  minP: fc.constantFrom(0, 0, 0.05, 0.3),
});

interface DrawnRow {
  readonly spread: number;
  readonly type: FloatType;
  readonly hasExcluded: boolean;
  readonly seed: number;
  readonly params: Partial<SamplingParams>;
}

const row: fc.Arbitrary<DrawnRow> = fc.record({
  spread: fc.constantFrom(0.2, 4, 12, 60),
  // Heads of 16 bits leave many equal logits.
  type: fc.constantFrom("float32", "bfloat16", "float16"),
  hasExcluded: fc.boolean(),
  seed: fc.nat(),
  params,
});

/** Larger ones are rarer, as a model's are. */
function logitsOf({ spread, type, hasExcluded, seed }: DrawnRow, vocabSize: number): Float32Array {
  const random = createRandom(seed);
  const values = Float32Array.from({ length: vocabSize }, () => Math.log(random() + 1e-3) * -spread);
  if (hasExcluded) values[seed % vocabSize] = -Infinity;
  return rounded(type, values);
}

function scaleOf(params: Partial<SamplingParams>): number {
  const whole = createSamplingParams(params);
  return isGreedy(whole) ? 1 : inverseTemperature(whole);
}

describe.for(testDevices)("on %s", (device) => {
  test.for([50, 300, 3000])("the candidates of %i tokens give the tokens of whole rows", (vocabSize) => {
    using session = Session.fromBytes(buildTail(vocabSize).encode(), { device, deviceId: 0, numThreads: 1 });
    let numRows = 0;
    let numRead = 0;
    let numTied = 0;
    fc.assert(
      fc.property(fc.array(row, { minLength: 1, maxLength: 6 }), (drawn) => {
        const rows = drawn.map((each) => ({ ...each, logits: [...logitsOf(each, vocabSize)] }));
        const values = Float32Array.from(rows.flatMap(({ logits }) => logits));
        const scales = Float32Array.from(rows, (each) => scaleOf(each.params));
        using tail = bindTail(session, vocabSize, values, scales);
        tail.compute();
        tail.keep();
        const { samples, readRows } = sampleFrom(rows, tail.logits.deferred(0));
        expect(samples).toEqual(sampleOnce(rows));
        numRows += rows.length;
        numRead += readRows.size;
        numTied += rows.filter(({ logits }) => new Set(logits).size < vocabSize).length;
      }),
      { numRuns: 200 },
    );
    expect(numRead).toBeLessThan(0.5 * numRows);
    expect(numTied).toBeGreaterThan(0.2 * numRows);
  });
});
