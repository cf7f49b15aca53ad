import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

import { inverseFrequencies, parseRopeConfig, ropeTables } from "../../../engine/models/llama/rope.ts";

interface RecordedRope {
  readonly name: string;
  readonly ropeParameters: Readonly<Record<string, unknown>>;
  /** Tokens of the longest sequence, if they matter. */
  readonly numPositions?: number;
  readonly inverseFrequencies: readonly number[];
  readonly amplitude: number;
}

const recorded = JSON.parse(
  readFileSync(fileURLToPath(new URL("../../fixtures/rope.json", import.meta.url)), "utf8"),
) as RecordedRope[];
const headDim = 32;
const defaults = { defaultTheta: 10000, maxPositionEmbeddings: 2048, longRopeDim: headDim };

test.for(recorded)("$name has the frequencies and amplitude of transformers", (golden) => {
  const config = parseRopeConfig({ rope_parameters: golden.ropeParameters }, "", defaults);
  const numPositions = golden.numPositions ?? 2;
  const frequencies = inverseFrequencies(config, headDim, numPositions);
  expect(frequencies.length).toBe(golden.inverseFrequencies.length);
  golden.inverseFrequencies.forEach((expected, index) => {
    expect(Math.abs(frequencies[index]! / expected - 1)).toBeLessThan(1e-6);
  });
  // At position 0 every cosine is the amplitude and every sine is zero.
  const { cos, sin } = ropeTables(config, headDim, numPositions);
  expect(cos[0]).toBeCloseTo(golden.amplitude, 6);
  expect(sin[0]).toBe(0);
  expect(sin[headDim / 2]).toBeCloseTo(Math.sin(golden.inverseFrequencies[0]!) * golden.amplitude, 6);
});

test.for(recorded)("$name is the same in the spelling of transformers 4", ({ ropeParameters }) => {
  const { rope_theta: theta, rope_type: type, ...others } = ropeParameters;
  const old = parseRopeConfig({ rope_theta: theta, rope_scaling: { type, ...others } }, "", defaults);
  expect(old).toEqual(parseRopeConfig({ rope_parameters: ropeParameters }, "", defaults));
});

test("dynamic scaling does nothing up to the checkpoint's own length", () => {
  const config = { rope_theta: 5000, rope_scaling: { rope_type: "dynamic", factor: 2 } };
  expect(parseRopeConfig(config, "", defaults)).toEqual({ theta: 5000, scaling: { kind: "none" } });
});

test.for([
  [{ rope_type: "longrope", factor: 2 }, "is not supported: it lacks original_max_position_embeddings"],
  [
    { rope_type: "longrope", original_max_position_embeddings: 64, short_factor: [1] },
    "rope_parameters.short_factor = [1] is not supported: expected 16 positive numbers",
  ],
  [{ rope_type: "linear" }, 'config.json: rope_parameters.rope_type = "linear" is not supported: it lacks factor'],
  [{ partial_rotary_factor: 0.5 }, "config.json: rope_parameters.partial_rotary_factor = 0.5 is not supported"],
] as const)("%o is rejected", ([ropeParameters, message]) => {
  expect(() => parseRopeConfig({ rope_parameters: ropeParameters }, "", defaults)).toThrow(message);
});

test("LongRoPE is rejected for models of which transformers has none", () => {
  const rope = recorded.find(({ ropeParameters }) => ropeParameters.rope_type === "longrope")!.ropeParameters;
  const { longRopeDim: _, ...others } = defaults;
  expect(() => parseRopeConfig({ rope_parameters: rope }, "", others)).toThrow(
    'rope_type = "longrope" is not supported',
  );
});
