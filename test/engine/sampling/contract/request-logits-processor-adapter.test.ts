import { describe, expect, test } from "vitest";

import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { RequestLogitsProcessorAdapter } from "../../../../engine/sampling/contract/request-logits-processor-adapter.ts";
import type { RequestLogitsProcessor } from "../../../../engine/sampling/contract/request-logits-processor-adapter.ts";
import { reasonOf, RowFailures } from "../../../../engine/sampling/contract/row-failures.ts";
import { StepLogits } from "../../../../engine/sampling/step-logits.ts";
import { engineConfig } from "../create-sampler.ts";

/** Serves the requests that name a function in their arguments. */
class TestAdapter extends RequestLogitsProcessorAdapter {
  readonly functions: Readonly<Record<string, () => unknown>>;
  numCreated = 0;

  constructor(functions: Readonly<Record<string, () => unknown>>) {
    super(engineConfig, "cpu", {});
    this.functions = functions;
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor({
    extraArgs,
  }: ReturnType<typeof createSamplingParams>): RequestLogitsProcessor | null {
    if (extraArgs.function === undefined) return null;
    this.numCreated += 1;
    return this.functions[String(extraArgs.function)]!() as RequestLogitsProcessor;
  }
}

function added(index: number, name?: string) {
  const params = createSamplingParams({ extraArgs: name === undefined ? {} : { function: name } });
  return { index, params, promptTokenIds: [70 + index], outputTokenIds: [] as number[] };
}

function createLogits(numRows: number): StepLogits {
  const logits = new StepLogits(numRows, 3);
  logits.numRequests = numRows;
  for (let row = 0; row < numRows; row++) logits.row(row).set([0, 1, 2]);
  return logits;
}

function failuresOf(action: () => unknown): [number, string][] {
  try {
    action();
  } catch (error) {
    if (!(error instanceof RowFailures)) throw error;
    return Array.from(error.failures, ([row, thrown]) => [row, reasonOf(thrown)]);
  }
  return [];
}

const swap = { from: 0, to: 2, directionality: "swap" } as const;

describe("a function per request", () => {
  test("is created once per add, follows its row, and does not touch other rows", () => {
    const adapter = new TestAdapter({
      reverse: () => (_output: readonly number[], row: Float32Array) => row.reverse(),
    });
    const rows = [added(0, "reverse"), added(1), added(2)];
    adapter.updateState({ batchSize: 3, removed: [], added: rows, moved: [swap] });
    for (let step = 0; step < 3; step++) {
      adapter.updateState(null);
      const logits = createLogits(3);
      expect(adapter.apply(logits)).toBe(logits);
      expect([...logits.data]).toEqual([0, 1, 2, 0, 1, 2, 2, 1, 0]);
    }
    expect(adapter.numCreated).toBe(1);
  });

  test("with three parameters also sees the prompt, and the newest token of the live output", () => {
    const seen: unknown[] = [];
    const adapter = new TestAdapter({
      ofOutput: () => (output: readonly number[], row: Float32Array) => {
        seen.push([...output]);
        return row;
      },
      ofBoth: () => (prompt: readonly number[], output: readonly number[], row: Float32Array) => {
        seen.push([...prompt, ...output]);
        return row;
      },
    });
    const rows = [added(0, "ofOutput"), added(1, "ofBoth")];
    adapter.updateState({ batchSize: 2, removed: [], added: rows, moved: [] });
    for (const { outputTokenIds } of rows) outputTokenIds.push(5);
    adapter.apply(createLogits(2));
    expect(seen).toEqual([[5], [71, 5]]);
  });

  test("may return its own row", () => {
    const adapter = new TestAdapter({ own: () => (_output: unknown, _row: unknown) => Float32Array.of(7, 8, 9) });
    adapter.updateState({ batchSize: 1, removed: [], added: [added(0, "own")], moved: [] });
    const logits = createLogits(1);
    adapter.apply(logits);
    expect([...logits.data]).toEqual([7, 8, 9]);
  });
});

describe("a failure names its row, and other rows are processed", () => {
  const reverse = () => (_output: unknown, row: Float32Array) => row.reverse();
  const wrongReturns: [string, () => unknown, string][] = [
    ["nothing", () => (_o: unknown, _r: unknown) => undefined, "must return a row of 3 logits, got undefined"],
    ["a short row", () => (_o: unknown, _r: unknown) => new Float32Array(2), "row of 3 logits, got 2 values"],
    ["a list", () => (_o: unknown, row: Float32Array) => Array.from(row), "row of 3 logits, got a list of 3 elements"],
    [
      "a value that has no text",
      () => (_o: unknown, _r: unknown) => {
        throw Object.create(null);
      },
      "it threw a value that has no text",
    ],
    [
      "an exception",
      () => (_o: unknown, _r: unknown) => {
        throw new Error("no idea");
      },
      "no idea",
    ],
  ];

  test.for(wrongReturns)("when a call ends with %s", ([, broken, message]) => {
    const adapter = new TestAdapter({ broken, reverse });
    adapter.updateState({ batchSize: 2, removed: [], added: [added(0, "broken"), added(1, "reverse")], moved: [] });
    const logits = createLogits(2);
    expect(failuresOf(() => adapter.apply(logits))).toEqual([[0, expect.stringContaining(message)]]);
    expect([...logits.row(1)]).toEqual([2, 1, 0]);
  });

  const wrongFunctions: [string, () => unknown, string][] = [
    ["of one parameter", () => (_row: unknown) => null, "a function of 2 or 3 parameters, got one of 1"],
    ["that is none", () => 5, "a function of 2 or 3 parameters, got 5"],
    [
      "that cannot be made",
      () => {
        throw new Error("no table for this request");
      },
      "no table for this request",
    ],
  ];

  test.for(wrongFunctions)("when it has a function %s, wherever its row has moved", ([, broken, message]) => {
    const adapter = new TestAdapter({ broken, reverse });
    const rows = [added(0, "broken"), added(1), added(2, "reverse")];
    const update = { batchSize: 3, removed: [], added: rows, moved: [swap] };
    expect(failuresOf(() => adapter.updateState(update))).toEqual([[2, expect.stringContaining(message)]]);
    const logits = createLogits(3);
    adapter.apply(logits);
    expect([...logits.data]).toEqual([2, 1, 0, 0, 1, 2, 0, 1, 2]);
  });
});
