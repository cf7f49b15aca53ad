import * as fc from "fast-check";
import { describe, expect, test } from "vitest";

import type { SamplingParams } from "../../../engine/contract/sampling-params.ts";
import { LogitsProcessor } from "../../../engine/sampling/contract/logits-processor.ts";
import type { BatchUpdate, Logits } from "../../../engine/sampling/contract/logits-processor.ts";
import { compileOnce, shapesVocabulary } from "../structured-output/grammars.ts";
import { engineConfig, eosTokenId, sampleDeferred, sampleOnce } from "./create-sampler.ts";
import type { TestRow } from "./create-sampler.ts";

type Apply = (logits: Logits) => Logits | Float32Array;

/** Applies a function to every batch. */
class TestProcessor extends LogitsProcessor {
  readonly #apply: Apply;
  readonly #isInvariant: boolean;

  constructor(apply: Apply, isInvariant = false) {
    super(engineConfig, "cpu", {});
    this.#apply = apply;
    this.#isInvariant = isInvariant;
  }

  override isArgmaxInvariant(): boolean {
    return this.#isInvariant;
  }

  override updateState(_batchUpdate: BatchUpdate | null): void {}

  override apply(logits: Logits): Logits | Float32Array {
    return this.#apply(logits);
  }
}

const greedy = { temperature: 0 };

describe("the choice of a token", () => {
  test("is the most likely one at temperature 0, with the lowest id among equals", () => {
    expect(sampleOnce([{ logits: [1, 3, 3, 2], params: greedy }])[0]!.tokenId).toBe(1);
  });

  describe("fails when every logit is excluded, for greedy and drawn rows alike:", () => {
    const logits = [1, 2, 3];

    test("by processors, which are named", () => {
      const custom = [
        () => new TestProcessor((all) => all),
        () => new TestProcessor(({ data }) => data.fill(-Infinity)),
      ];
      for (const { error } of sampleOnce([{ logits, params: greedy }, { logits }], custom)) {
        expect(error).toMatchObject({
          code: "logits_processor_failed",
          message: "No token is left to sample: every logit is -Infinity or NaN after the logits processors custom 1.",
        });
      }
    });

    test("by the request itself", () => {
      const params = { allowedTokenIds: [1] };
      const badWordsTokenIds = [[1]];
      const rows = [
        { logits, params: { ...greedy, ...params }, badWordsTokenIds },
        { logits, params, badWordsTokenIds },
      ];
      for (const { error } of sampleOnce(rows)) {
        expect(error).toMatchObject({
          code: "invalid_argument",
          message: expect.stringMatching(/constraints exclude every token/),
        });
      }
    });

    test("by the model", () => {
      const broken = [NaN, NaN, NaN];
      for (const { error } of sampleOnce([{ logits: broken, params: greedy }, { logits: broken }])) {
        expect(error?.code).toBe("runtime_failed");
      }
    });
  });

  test("fails when processors allow a token again that the grammar forbids, and names both", async () => {
    const { vocabSize } = shapesVocabulary;
    const grammar = await compileOnce(shapesVocabulary, { kind: "choice", choices: ["red", "blue"] });
    const logits = Array.from({ length: vocabSize }, () => 0);
    const custom = [
      () => new TestProcessor((all) => all),
      () => new TestProcessor((all) => ((all.row(0)[5] = 9), all)),
    ];
    const samples = sampleOnce(
      [
        { logits, params: greedy, grammar },
        { logits, params: greedy, grammar },
      ],
      custom,
    );
    expect(samples[0]!.error).toMatchObject({
      code: "logits_processor_failed",
      message:
        'The structured output choice ["red","blue"] does not allow the token 5 that was chosen after the logits processors custom 1.',
    });
    expect(samples[1]!.error).toBeNull();
  });

  test("follows the probabilities at the temperature", () => {
    const numDraws = 4000;
    let numFirst = 0;
    for (let seed = 0; seed < numDraws; seed++) {
      const { tokenId } = sampleOnce([{ logits: [1, 0], params: { temperature: 0.5 }, seed }])[0]!;
      if (tokenId === 0) numFirst++;
    }
    // softmax([2, 0])[0]; four standard deviations of the share are 0.02.
    expect(Math.abs(numFirst / numDraws - 1 / (1 + Math.exp(-2)))).toBeLessThan(0.02);
  });

  const testRow: fc.Arbitrary<TestRow> = fc.record({
    logits: fc.array(fc.float({ min: -8, max: 8, noNaN: true }), { minLength: 24, maxLength: 24 }),
    params: fc.record({
      temperature: fc.constantFrom(0, 0.3, 1, 1.7),
      topP: fc.constantFrom(0.2, 0.9, 1),
      topK: fc.constantFrom(0, 1, 5, 100),
      minP: fc.constantFrom(0, 0.1),
      minTokens: fc.constantFrom(0, 3),
    }),
    seed: fc.maxSafeInteger(),
    outputTokenIds: fc.array(fc.nat(20), { maxLength: 5 }),
  });

  test("is the same alone and in any batch", () => {
    fc.assert(
      fc.property(fc.array(testRow, { minLength: 1, maxLength: 6 }), (rows) => {
        const alone = rows.map((row) => sampleOnce([row])[0]!.tokenId);
        expect(sampleOnce(rows).map(({ tokenId }) => tokenId)).toEqual(alone);
        expect(sampleOnce(rows.toReversed()).map(({ tokenId }) => tokenId)).toEqual(alone.toReversed());
      }),
    );
  });

  test("differs between positions of one seed", () => {
    const logits = Array.from({ length: 16 }, () => 0);
    const drawn = Array.from({ length: 12 }, (_, position) => {
      const outputTokenIds = Array.from({ length: position }, () => 0);
      return sampleOnce([{ logits, seed: 5, outputTokenIds }])[0]!.tokenId;
    });
    expect(new Set(drawn).size).toBeGreaterThan(4);
  });
});

describe("built-in processors", () => {
  const probabilities = [0.4, 0.4, 0.15, 0.05];
  const minPCases: [minP: number, drawn: number[]][] = [
    [0.1, [0, 1, 2, 3]],
    [0.13, [0, 1, 2]],
    [0.37, [0, 1, 2]],
    [0.38, [0, 1]],
    [1, [0, 1]],
  ];

  test.for(minPCases)("min-p of %f drops tokens below that share of the largest probability", ([minP, expected]) => {
    const drawn = new Set<number | null>();
    for (let seed = 0; seed < 300; seed++) {
      drawn.add(sampleOnce([{ logits: probabilities.map(Math.log), params: { minP }, seed }])[0]!.tokenId);
    }
    expect([...drawn].toSorted((left, right) => left! - right!)).toEqual(expected);
  });

  test("end and stop tokens are excluded below the minimum, also if the end is ignored", () => {
    const logits = [0, 1, 5, 4];
    const params = { ...greedy, minTokens: 2, stopTokenIds: [3], ignoreEos: true };
    expect(sampleOnce([{ logits, params, outputTokenIds: [9] }])[0]!.tokenId).toBe(1);
    expect(sampleOnce([{ logits, params, outputTokenIds: [9, 9] }])[0]!.tokenId).toBe(eosTokenId);
  });
});

describe("a spent thinking budget", () => {
  const thinkingBudget = { numTokens: 1, startTokenIds: [0], endTokenIds: [3, 4], startsInside: true };
  const logits = [1, 9, 3, -5, 2];
  const rows: readonly Partial<TestRow>[] = [
    {},
    { badWordsTokenIds: [[3]] },
    { params: { allowedTokenIds: [1, 2] } },
    { params: { logitBias: { 1: 100 } } },
    { params: { presencePenalty: 2, repetitionPenalty: 2 } },
    { params: { logprobs: 1 } },
  ];
  const asked = (temperature: number, outputTokenIds: readonly number[]): TestRow[] =>
    rows.map(({ params, badWordsTokenIds = [] }) => {
      return { logits, params: { ...params, temperature }, badWordsTokenIds, outputTokenIds, thinkingBudget };
    });

  test.for([0, 1])("ends the thinking whatever the request excludes or prefers, at temperature %d", (temperature) => {
    const spent = asked(temperature, [1]);
    expect(sampleOnce(spent).map(({ tokenId }) => tokenId)).toEqual(rows.map(() => 3));
    expect(sampleDeferred(spent, 2).samples).toEqual(sampleOnce(spent));
    expect(sampleOnce(asked(temperature, [1, 3])).map(({ tokenId }) => tokenId)).toEqual(rows.map(() => 4));
  });

  test.for<readonly [string, Apply]>([
    ["assigns a logit to its own token", ({ data }) => data.fill(-Infinity).fill(50, 1, 2)],
    ["excludes the end of the thinking", ({ data }) => data.fill(-Infinity, 3, 4)],
  ])("comes after a custom processor that %s", ([, apply]) => {
    const [sample] = sampleOnce(asked(0, [1]).slice(0, 1), [() => new TestProcessor(apply)]);
    expect(sample).toMatchObject({ tokenId: 3, error: null });
  });

  test("waits while the grammar forbids the end of the thinking", async () => {
    const grammar = await compileOnce(shapesVocabulary, { kind: "regex", pattern: "[a-f]{3}<" });
    const [a, end] = [shapesVocabulary.tokenizer.tokenId("a")!, shapesVocabulary.tokenizer.tokenId("<")!];
    const budget = { ...thinkingBudget, endTokenIds: [end] };
    const row = { logits: Array.from({ length: shapesVocabulary.vocabSize }, (_, id) => (id === a ? 1 : 0)), grammar };
    const tokenAfter = (outputTokenIds: readonly number[]) =>
      sampleOnce([{ ...row, params: greedy, outputTokenIds, thinkingBudget: budget }])[0]!.tokenId;
    expect([tokenAfter([a]), tokenAfter([a, a, a])]).toEqual([a, end]);
  });
});

describe("custom processors", () => {
  test("act on greedy rows before the choice unless they are argmax-invariant", () => {
    const flip: Apply = (logits) => {
      logits.row(0).reverse();
      return logits;
    };
    const row = { logits: [1, 2, 3], params: greedy };
    expect(sampleOnce([row], [() => new TestProcessor(flip)])[0]!.tokenId).toBe(0);
    expect(sampleOnce([row], [() => new TestProcessor(flip, true)])[0]!.tokenId).toBe(2);
  });

  test("that are argmax-invariant see logits divided by the temperature, and are skipped in a greedy batch", () => {
    const seen: number[][] = [];
    const record: Apply = (logits) => {
      seen.push([...logits.data]);
      return logits;
    };
    const processors = [() => new TestProcessor(record, true)];
    sampleOnce([{ logits: [1, 2], params: greedy }], processors);
    expect(seen).toEqual([]);
    sampleOnce(
      [
        { logits: [1, 2], params: greedy },
        { logits: [1, 2], params: { temperature: 0.5 } },
      ],
      processors,
    );
    expect(seen).toEqual([[1, 2, 2, 4]]);
  });

  test("may return another buffer of the same length", () => {
    const replace: Apply = () => Float32Array.of(9, 0, 0);
    expect(sampleOnce([{ logits: [1, 2, 3], params: greedy }], [() => new TestProcessor(replace)])[0]!.tokenId).toBe(0);
  });

  test.for([
    ["nothing", () => undefined as unknown as Logits, "got undefined"],
    ["a buffer of another length", () => new Float32Array(2), "got 2 values"],
  ] as const)("that return %s are reported by name", ([, apply, got]) => {
    const { error } = sampleOnce([{ logits: [1, 2, 3] }], [() => new TestProcessor(apply)])[0]!;
    expect(error?.message).toBe(
      `The logits processor custom 0 failed: apply() must return logits of 1 x 3 values, ${got}`,
    );
  });
});

describe("logprobs", () => {
  const row = { logits: [2, 1, 2, 0], params: { ...greedy, logprobs: 3 } };
  const total = 2 * Math.exp(2) + Math.exp(1) + 1;

  test("equal those of the raw logits, with ranks in which equals count against a token", () => {
    const { tokenId, logprobs } = sampleOnce([row])[0]!;
    expect(tokenId).toBe(0);
    expect(logprobs?.sampled.logprob).toBeCloseTo(2 - Math.log(total), 6);
    expect(logprobs?.top.map(({ tokenId: id, rank }) => [id, rank])).toEqual([
      [0, 2],
      [2, 2],
      [1, 3],
    ]);
    expect(logprobs?.top[2]?.logprob).toBeCloseTo(1 - Math.log(total), 6);
  });

  test("are not affected by processors and temperature", () => {
    const ban: Apply = (logits) => {
      logits.row(0)[0] = -Infinity;
      logits.row(0)[2] = -Infinity;
      return logits;
    };
    const { tokenId, logprobs } = sampleOnce(
      [{ ...row, params: { logprobs: 1, temperature: 0.01 } }],
      [() => new TestProcessor(ban)],
    )[0]!;
    expect(tokenId).toBe(1);
    expect(logprobs?.sampled).toMatchObject({ tokenId: 1, rank: 3 });
    expect(logprobs?.sampled.logprob).toBeCloseTo(1 - Math.log(total), 6);
    expect(logprobs?.top).toMatchObject([{ tokenId: 0, rank: 2 }]);
  });

  test("with zero alternatives contain only the token's own, and with null none", () => {
    const [own, none] = sampleOnce([
      { ...row, params: { ...greedy, logprobs: 0 } },
      { ...row, params: greedy },
    ]);
    expect(own!.logprobs?.top).toEqual([]);
    expect(own!.logprobs?.sampled.rank).toBe(2);
    expect(none!.logprobs).toBeNull();
  });

  test("have a floor that JSON can represent", () => {
    const logits = [0, -Infinity];
    const { logprobs } = sampleOnce([{ logits, params: { ...greedy, logprobs: 2 } }])[0]!;
    expect(logprobs?.top[1]?.logprob).toBe(-9999);
  });

  test("contain the same top alternatives as a sort, with their ranks", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: -5, max: 5 }), { minLength: 1, maxLength: 60 }),
        fc.nat(20),
        (logits, n) => {
          const { logprobs } = sampleOnce([{ logits, params: { ...greedy, logprobs: n } }])[0]!;
          const order = logits.map((_, id) => id).sort((a, b) => logits[b]! - logits[a]! || a - b);
          const expected = order.slice(0, n).map((id) => [id, logits.filter((logit) => logit >= logits[id]!).length]);
          expect(logprobs?.top.map(({ tokenId, rank }) => [tokenId, rank])).toEqual(expected);
        },
      ),
    );
  });
});

describe("deferred rows", () => {
  const vocabSize = 60;
  const numCandidates = 12;
  const row = fc.record({
    logits: fc
      .tuple(
        fc.constantFrom(4, 20, 80),
        fc.constantFrom(4, 2 ** 20),
        fc.array(fc.integer({ min: -(2 ** 20), max: 2 ** 20 }), sizeOf(vocabSize)),
      )
      .map(([spread, steps, values]) =>
        values.map((value) => Math.fround(Math.round((value / 2 ** 21) * spread * steps) / steps)),
      ),
    seed: fc.nat(),
    outputTokenIds: fc.array(fc.nat({ max: vocabSize - 1 }), { maxLength: 4 }),
    params: fc.oneof(
      fc.record({
        temperature: fc.constantFrom(0, 0.3, 1, 1.4),
        topK: fc.constantFrom(0, 1, 8, 30),
        topP: fc.constantFrom(1, 0.4, 0.95),
        minP: fc.constantFrom(0, 0, 0.05, 0.3),
      }),
      fc.constantFrom<Partial<SamplingParams>>(
        { logprobs: 2 },
        { temperature: 0.8, repetitionPenalty: 1.3, minP: 0.1 },
        { temperature: 0, presencePenalty: 1 },
        { logitBias: { 3: 4 }, minP: 0.02 },
        { allowedTokenIds: [2, 5, 7] },
      ),
    ),
  });
  /** Looks at every second row after the temperature. */
  const custom = [
    () =>
      new TestProcessor((logits) => {
        for (let index = 0; index < logits.numRequests; index += 2) logits.row(index)[1]! += 0.5;
        return logits;
      }, true),
  ];

  /** Looks at all rows after the temperature. */
  const customOfAll = [
    () =>
      new TestProcessor((logits) => {
        const { data, vocabSize: size } = logits;
        for (let place = 1; place < data.length; place += 2 * size) data[place]! += 0.5;
        return logits;
      }, true),
  ];

  test("get the tokens of rows that are read whole", () => {
    let numRows = 0;
    let numRead = 0;
    fc.assert(
      fc.property(
        fc.array(row, { minLength: 1, maxLength: 6 }),
        fc.constantFrom("none", "none", "rows", "data"),
        (rows, readers) => {
          const processors = readers === "none" ? [] : readers === "rows" ? custom : customOfAll;
          const { samples, readRows } = sampleDeferred(rows, numCandidates, processors);
          expect(samples).toEqual(sampleOnce(rows, processors));
          numRows += rows.length;
          numRead += readRows.size;
        },
      ),
      { numRuns: 600 },
    );
    expect(numRead).toBeLessThan(0.9 * numRows);
  });

  test("are read only if something besides their candidates decides the token", () => {
    const logits = Array.from({ length: vocabSize }, (_, index) => (index < 3 ? 5 - index : -9));
    const rows = [
      { logits, params: { temperature: 0 } },
      { logits, params: { temperature: 0.9, topK: 5, topP: 0.9, minP: 0.01 }, seed: 4 },
      { logits, params: { temperature: 0, logprobs: 1 } },
      { logits, params: { frequencyPenalty: 0.1 }, outputTokenIds: [1] },
      { logits, params: { logitBias: { 1: 1 } } },
    ];
    expect(sampleDeferred(rows, numCandidates).readRows).toEqual(new Set([2, 3, 4]));
  });

  test("are read in one copy where neighbours are known to be read", () => {
    const logits = Array.from({ length: vocabSize }, (_, index) => (index < 3 ? 5 - index : -9));
    const greedyRow = { logits, params: greedy };
    const rows = [
      { logits, params: { ...greedy, presencePenalty: 1 }, outputTokenIds: [0] },
      { logits, params: { ...greedy, logprobs: 1 } },
      { logits, params: { ...greedy, logitBias: { 7: 20 } } },
      greedyRow,
      { logits, params: { ...greedy, allowedTokenIds: [4] } },
      // Reads its row only if the output would repeat something.
      { logits, params: { ...greedy, extraArgs: { ngram_size: 2, window_size: 40 } }, outputTokenIds: [1, 2] },
      { logits, params: { ...greedy, minTokens: 2 } },
      { logits, params: greedy, badWordsTokenIds: [[0]] },
    ];
    const { samples, readRows, numCopies } = sampleDeferred(rows, numCandidates);
    expect(samples).toEqual(sampleOnce(rows));
    expect(samples.map(({ tokenId }) => tokenId)).toEqual([0, 0, 7, 0, 4, 0, 0, 1]);
    expect([readRows, numCopies]).toEqual([new Set([0, 1, 2, 4, 6, 7]), 3]);
    const all = [() => new TestProcessor((read) => read.data)];
    expect(sampleDeferred([greedyRow, greedyRow, greedyRow], numCandidates, all).numCopies).toBe(1);
  });

  test("with NaN are read, and fail as others do", () => {
    const logits = Array.from({ length: vocabSize }, () => Number.NaN);
    for (const temperature of [0, 1]) {
      const { samples, readRows } = sampleDeferred([{ logits, params: { temperature } }], numCandidates);
      expect(samples[0]!.error?.code).toBe("runtime_failed");
      expect(readRows).toEqual(new Set([0]));
    }
  });
});

function sizeOf(length: number): { readonly minLength: number; readonly maxLength: number } {
  return { minLength: length, maxLength: length };
}
