import { describe, expect, test } from "vitest";

import type { EngineError } from "../../../../engine/contract/errors.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { LogitsProcessor } from "../../../../engine/sampling/contract/logits-processor.ts";
import type { AddedRequest, BatchUpdate, Logits } from "../../../../engine/sampling/contract/logits-processor.ts";
import { RequestLogitsProcessorAdapter } from "../../../../engine/sampling/contract/request-logits-processor-adapter.ts";
import type { RequestLogitsProcessor } from "../../../../engine/sampling/contract/request-logits-processor-adapter.ts";
import { RowStates } from "../../../../engine/sampling/contract/row-states.ts";
import { CustomProcessor } from "../../../../engine/sampling/custom/custom-processor.ts";
import { GuardedLogits } from "../../../../engine/sampling/guarded-logits.ts";
import { StepLogits } from "../../../../engine/sampling/step-logits.ts";
import { engineConfig, sampleOnce } from "../create-sampler.ts";
import type { TestRow, TestSample } from "../create-sampler.ts";

interface Wish {
  readonly target: number;
  readonly fault: string | null;
}

function wishOf({ extraArgs: { target, fault } }: SamplingParams): Wish | undefined {
  if (typeof target !== "number") return undefined;
  return { target, fault: typeof fault === "string" ? fault : null };
}

/** Forces each request's target token, row by row, and throws if a request says so. */
class Forcing extends LogitsProcessor {
  protected readonly wishes = new RowStates<Wish>();

  override isArgmaxInvariant(): boolean {
    return false;
  }

  override updateState(batchUpdate: BatchUpdate | null): void {
    this.wishes.update(batchUpdate, ({ params }: AddedRequest) => {
      const wish = wishOf(params);
      if (wish?.fault === "update") throw new Error("cannot take it");
      return wish;
    });
  }

  override apply(logits: Logits): Logits | Float32Array {
    for (const [rowIndex, wish] of this.wishes.entries()) {
      logits.row(rowIndex).fill(-Infinity)[wish.target] = 1;
      if (wish.fault === "apply") throw new Error("cannot apply");
      if (wish.fault === "nothing") return undefined as unknown as Logits;
      if (wish.fault === "crowd" && logits.numRequests > 1) throw new Error("cannot serve so many");
    }
    return logits;
  }
}

/** The same in one pass over the whole buffer. */
class ForcingAtOnce extends Forcing {
  override apply(logits: Logits): Float32Array {
    const data = logits.data;
    for (const [rowIndex, { target }] of this.wishes.entries()) {
      const start = rowIndex * logits.vocabSize;
      data.fill(-Infinity, start, start + logits.vocabSize);
      data[start + target] = 1;
    }
    for (const [, { fault }] of this.wishes.entries()) if (fault === "apply") throw new Error("cannot apply");
    return data;
  }
}

/** The same with a function per request. */
class ForcingFunctions extends RequestLogitsProcessorAdapter {
  override isArgmaxInvariant(): boolean {
    return false;
  }

  override newRequestLogitsProcessor(params: SamplingParams): RequestLogitsProcessor | null {
    const wish = wishOf(params);
    if (wish?.fault === "update") throw new Error("cannot take it");
    if (wish === undefined) return null;
    return (_outputTokenIds: readonly number[], row: Float32Array) => {
      row.fill(-Infinity)[wish.target] = 1;
      if (wish.fault === "apply") throw new Error("cannot apply");
      return wish.fault === "nothing" ? (undefined as unknown as Float32Array) : row;
    };
  }
}

const drawn = { temperature: 1, topP: 0.95 };
const logits = Array.from({ length: 12 }, (_, tokenId) => Math.sin(tokenId * 2.3));

function row(seed: number, extraArgs: SamplingParams["extraArgs"] = {}): TestRow {
  return {
    logits: logits.map((logit, tokenId) => logit + Math.cos(seed + tokenId)),
    seed,
    params: { ...drawn, extraArgs },
  };
}

function raise(value: unknown): never {
  throw value;
}

function withMessage(message: unknown): Error {
  return Object.assign(new Error(), { message });
}

function unreadable(): Error {
  return Object.defineProperty(new Error(), "message", { get: () => raise(new Error("cannot be read")) });
}

function tokensOf(samples: readonly TestSample[]): (number | null)[] {
  return samples.map(({ tokenId }) => tokenId);
}

describe.for([
  ["rows one by one", () => new Forcing(engineConfig, "cpu", {})],
  ["the buffer at once", () => new ForcingAtOnce(engineConfig, "cpu", {})],
  ["a function per request", () => new ForcingFunctions(engineConfig, "cpu", {})],
] as const)("a processor of %s", ([, create]) => {
  test.for(["apply", "update"])("that throws in %s for one request ends only that request", (fault) => {
    const culprit = row(3, { target: 5, fault });
    const others = [row(1), row(2, { target: 7 }), row(4, { target: 0 }), row(5)];
    const expected = tokensOf(sampleOnce(others, [create]));
    for (let position = 0; position <= others.length; position++) {
      const samples = sampleOnce(others.toSpliced(position, 0, culprit), [create]);
      const [failed] = samples.splice(position, 1);
      const reason = fault === "apply" ? "cannot apply" : "cannot take it";
      expect(failed!.error).toMatchObject({
        code: "logits_processor_failed",
        message: `The logits processor custom 0 failed: ${reason}`,
      });
      expect(tokensOf(samples)).toEqual(expected);
    }
  });

  test("that throws for two requests ends both", () => {
    const rows = [row(1, { target: 1, fault: "apply" }), row(2, { target: 2 }), row(3, { target: 3, fault: "apply" })];
    expect(tokensOf(sampleOnce(rows, [create]))).toEqual([null, 2, null]);
  });
});

describe("a processor", () => {
  test.for([
    [
      "batches",
      () => new Forcing(engineConfig, "cpu", {}),
      "apply() must return logits of 3 x 12 values, got undefined",
    ],
    [
      "functions",
      () => new ForcingFunctions(engineConfig, "cpu", {}),
      "the function of a request must return a row of 12 logits, got undefined",
    ],
  ] as const)("of %s that returns nothing for one request is reported by name", ([, create, problem]) => {
    const samples = sampleOnce([row(1, { target: 4, fault: "nothing" }), row(2, { target: 6 }), row(3)], [create]);
    expect(samples[0]!.error?.message).toBe(`The logits processor custom 0 failed: ${problem}`);
    expect(tokensOf(samples.slice(1))).toEqual(tokensOf(sampleOnce([row(2, { target: 6 }), row(3)], [create])));
  });

  test.for<[string, () => unknown, string]>([
    ["throws a value that has no text", () => raise(Object.create(null)), "it threw a value that has no text"],
    ["throws an error whose message is no text", () => raise(withMessage(Symbol("m"))), "Symbol(m)"],
    ["throws an error whose message cannot be read", () => raise(unreadable()), "it threw a value that has no text"],
    ["throws an error with a long message", () => raise(new Error("x".repeat(1e6))), `${"x".repeat(2000)}…`],
    [
      "returns numbers in a list",
      () => [1, 2, 3],
      "apply() must return logits of 3 x 12 values, got a list of 3 elements",
    ],
    [
      "returns double-precision numbers",
      () => new Float64Array(12),
      "apply() must return logits of 3 x 12 values, got a Float64Array",
    ],
    [
      "returns an object without a text",
      () => Object.create(null),
      "apply() must return logits of 3 x 12 values, got an object",
    ],
  ])("that %s ends only the request", ([, fail, problem]) => {
    class Failing extends Forcing {
      override apply(all: Logits): Logits {
        super.apply(all);
        for (const [, { fault }] of this.wishes.entries()) if (fault === "fail") return fail() as Logits;
        return all;
      }
    }
    const create = () => new Failing(engineConfig, "cpu", {});
    const samples = sampleOnce([row(1), row(2, { target: 4, fault: "fail" }), row(3, { target: 6 })], [create]);
    expect(samples[1]!.error?.message).toBe(`The logits processor custom 0 failed: ${problem}`);
    expect(tokensOf([samples[0]!, samples[2]!])).toEqual(
      tokensOf(sampleOnce([row(1), row(3, { target: 6 })], [create])),
    );
  });

  test("that fails only for several rows together ends the requests that use it, and no others", () => {
    const create = () => new Forcing(engineConfig, "cpu", {});
    const samples = sampleOnce(
      [row(1), row(2, { target: 4, fault: "crowd" }), row(3, { target: 4 }), row(4)],
      [create],
    );
    expect(samples.map(({ error }) => error?.message ?? null)).toEqual([
      null,
      "The logits processor custom 0 failed: cannot serve so many",
      "The logits processor custom 0 failed: cannot serve so many",
      null,
    ]);
    expect(tokensOf([samples[0]!, samples[3]!])).toEqual(tokensOf(sampleOnce([row(1), row(4)])));
  });

  test.for(["in every update", "in those without changes"])("that fails at an output %s ends its request", (when) => {
    class Watching extends Forcing {
      readonly #outputs = new RowStates<readonly number[]>();

      override updateState(batchUpdate: BatchUpdate | null): void {
        for (const [, tokenIds] of when === "in every update" || batchUpdate === null ? this.#outputs.entries() : []) {
          if (tokenIds.includes(9)) throw new Error("9 was generated");
        }
        super.updateState(batchUpdate);
        this.#outputs.update(batchUpdate, ({ outputTokenIds }: AddedRequest) => outputTokenIds);
      }
    }
    const processor = new CustomProcessor("Watching", () => new Watching(engineConfig, "cpu", {}));
    const outputs: number[][] = [[], [], []];
    const rows = outputs.map((outputTokenIds, index) => ({
      samplingParams: createSamplingParams({ extraArgs: index < 2 ? { target: index + 1 } : {} }),
      promptTokenIds: [],
      outputTokenIds,
    }));
    const stepLogits = new StepLogits(rows.length, logits.length);
    stepLogits.numRequests = rows.length;
    const errors = new Map<number, EngineError>();
    const added = rows.map(({ samplingParams: params, ...row }, index) => ({ ...row, params, index }));
    processor.updateState({ batchSize: rows.length, removed: [], added, moved: [] }, errors);
    processor.apply(new GuardedLogits(stepLogits, () => {}), rows, errors);
    expect(errors.size).toBe(0);

    outputs[1]!.push(9);
    rows.forEach((_, index) => stepLogits.row(index).set(logits));
    processor.updateState(null, errors);
    processor.apply(new GuardedLogits(stepLogits, () => {}), rows, errors);
    expect([...errors].map(([rowIndex, { message }]) => [rowIndex, message])).toEqual([
      [1, "The logits processor Watching failed: 9 was generated"],
    ]);
    expect(stepLogits.kernel.argmax(stepLogits.row(0))).toBe(1);
    expect(stepLogits.row(2)).toEqual(Float32Array.from(logits));
  });

  test("before one that fails keeps its effect, and one after it still runs", () => {
    const create = () => new Forcing(engineConfig, "cpu", {});
    class Doubling extends Forcing {
      override apply(all: Logits): Float32Array {
        return all.data.map((logit) => 2 * logit);
      }
    }
    const double = () => new Doubling(engineConfig, "cpu", {});
    const rows = [row(1), row(2, { target: 4, fault: "apply" }), row(3)];
    const samples = sampleOnce(rows, [double, create, double]);
    expect(samples[1]!.error?.message).toBe("The logits processor custom 1 failed: cannot apply");
    expect(tokensOf([samples[0]!, samples[2]!])).toEqual(tokensOf(sampleOnce([row(1), row(3)], [double, double])));
  });

  test("that cannot be created again ends every request, because its requests are unknown", () => {
    let numCreated = 0;
    const create = () => {
      numCreated += 1;
      if (numCreated > 1) throw new Error("its table is gone");
      return new Forcing(engineConfig, "cpu", {});
    };
    const samples = sampleOnce([row(1), row(2, { target: 4, fault: "apply" })], [create]);
    for (const { error } of samples) {
      expect(error?.message).toBe("The logits processor custom 0 failed: its table is gone");
    }
  });

  test.for(["updateState", "apply"] as const)(
    "that returns a promise from %s is rejected, and the promise's rejection is handled",
    (method) => {
      class Late extends Forcing {
        override updateState(batchUpdate: BatchUpdate | null): void {
          super.updateState(batchUpdate);
          // As in JavaScript, where types are not checked.
          if (method === "updateState" && [...this.wishes.entries()].length > 0)
            return Promise.reject(new Error("late")) as unknown as undefined;
        }

        override apply(all: Logits): Logits | Float32Array {
          const isUsed = [...this.wishes.entries()].length > 0;
          return method === "apply" && isUsed ? (Promise.reject(new Error("late")) as unknown as Logits) : all;
        }
      }
      const samples = sampleOnce([row(1), row(2, { target: 4 })], [() => new Late(engineConfig, "cpu", {})]);
      expect(samples.map(({ error }) => error?.message ?? null)).toEqual([
        null,
        `The logits processor custom 0 failed: ${method}() must not be asynchronous`,
      ]);
    },
  );

  test("that throws in isArgmaxInvariant is rejected by name", () => {
    class Undecided extends Forcing {
      override isArgmaxInvariant(): boolean {
        throw new Error("it depends");
      }
    }
    expect(() => new CustomProcessor("Undecided", () => new Undecided(engineConfig, "cpu", {}))).toThrow(
      expect.objectContaining({
        code: "invalid_logits_processor",
        message: "isArgmaxInvariant() of the logits processor Undecided threw: it depends",
      }),
    );
  });

  test("that does not return a boolean from isArgmaxInvariant is rejected by name", () => {
    class Silent extends Forcing {
      // As in JavaScript, where types are not checked.
      override isArgmaxInvariant(): boolean {
        return undefined as unknown as boolean;
      }
    }
    expect(() => new CustomProcessor("Silent", () => new Silent(engineConfig, "cpu", {}))).toThrow(
      "isArgmaxInvariant() of the logits processor Silent must return true or false, got undefined.",
    );
  });
});
