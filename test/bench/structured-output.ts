/** Cost of structured outputs in a step of 32 sequences, and the delay of their first token. */
import { performance } from "node:perf_hooks";

import { createSamplingParams } from "../../engine/index.ts";
import type { StructuredOutput } from "../../engine/index.ts";
import type { AddedSequence } from "../../engine/sampling/built-in/added-sequence.ts";
import { StepLogits } from "../../engine/sampling/step-logits.ts";
import { GrammarCompiler } from "../../engine/structured-output/grammar-compiler.ts";
import { GrammarLogitsProcessor } from "../../engine/structured-output/grammar-logits-processor.ts";
import { createGrammarVocabulary } from "../../engine/structured-output/grammar-vocabulary.ts";
import { benchConfig } from "./engine-throughput.ts";
import { limitFigure, median, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { engineOptions } from "./settings.ts";
import { LongestMatch, createTokens } from "./synthetic-vocabulary.ts";

const numRows = 32;
const vocabSizes = [49_152, 151_936] as const;
/** For a step of 32 rows that reaches every state for the first time, with the larger vocabulary. */
const worstStepMs = 50;

const text = { type: "string" };
const address = {
  type: "object",
  properties: { street: text, city: text, zip: { type: "string", pattern: "^[0-9]{5}$" } },
};
const person = {
  type: "object",
  properties: {
    name: { type: "string", maxLength: 60 },
    age: { type: "integer", minimum: 0, maximum: 150 },
    email: { type: "string", format: "email" },
    color: { enum: ["red", "green", "blue", "dark blue"] },
    isActive: { type: "boolean" },
    score: { type: "number" },
    tags: { type: "array", items: { type: "string", maxLength: 20 }, maxItems: 8 },
    address: { ...address, required: ["street", "city"] },
    joined: { type: "string", format: "date" },
    notes: { type: "string", maxLength: 400 },
  },
  required: ["name", "age", "color", "tags", "address", "notes"],
};

export interface MaskScenario {
  readonly name: string;
  readonly output: StructuredOutput;
  /** The text of row i. */
  readonly textOf: (rowIndex: number) => string;
}

const personOf = (rowIndex: number): unknown => ({
  name: `Ranst Chound ${rowIndex}`,
  age: 20 + rowIndex,
  email: `chound${rowIndex}@grand.org`,
  color: ["red", "green", "blue", "dark blue"][rowIndex % 4],
  isActive: rowIndex % 2 === 0,
  score: rowIndex / 7,
  tags: ["stain", "prou bost", "troundean"].slice(rowIndex % 3),
  address: { street: `${rowIndex} prain dest`, city: "Grount", zip: "12345" },
  joined: "2024-03-17",
  notes: 'shean groud 一丁 "tround" plast breastic. '.repeat(2 + (rowIndex % 3)),
});

const scenarios: readonly MaskScenario[] = [
  {
    name: "JSON Schema, 10 fields",
    output: { kind: "json-schema", schema: JSON.stringify(person) },
    textOf: (rowIndex) => JSON.stringify(personOf(rowIndex), null, rowIndex % 2).replaceAll(String.raw`\"`, "'"),
  },
  { name: "json_object", output: { kind: "json-object" }, textOf: (rowIndex) => JSON.stringify(personOf(rowIndex)) },
  {
    name: "regex",
    output: { kind: "regex", pattern: String.raw`(\w+( \w+){0,12}[.!?] ?){1,40}[A-Z]{2}-\d{4,9}` },
    textOf: (rowIndex) => `${"Shean groud tround plast. ".repeat(6 + (rowIndex % 5))}AB-${123456 + rowIndex}`,
  },
  {
    name: "choice of 1,000",
    output: { kind: "choice", choices: Array.from({ length: 1000 }, (_, index) => `item ${index * 37} of the plast`) },
    textOf: (rowIndex) => `item ${rowIndex * 37} of the plast`,
  },
];

export interface MaskTimes {
  readonly vocabularyMs: number;
  readonly compileMs: number;
  /** By step, in order. */
  readonly stepMs: readonly number[];
}

/** Rows start one step after the other, so that they are at different positions of their texts. */
async function measure(vocabSize: number, { output, textOf }: MaskScenario): Promise<MaskTimes> {
  const tokens = createTokens(vocabSize);
  const eosTokenId = 0;
  const texts = { tokenBytes: (id: number) => tokens[id]!, isSpecial: (id: number) => id === eosTokenId };
  let vocabularyMs = 0;
  const loadVocabulary = async () => {
    const startMs = performance.now();
    const vocabulary = await createGrammarVocabulary(texts, vocabSize, [eosTokenId]);
    vocabularyMs = performance.now() - startMs;
    return vocabulary;
  };
  await using compiler = new GrammarCompiler({ loadVocabulary });
  await compiler.compile({ kind: "choice", choices: ["a"] });
  const compileStartMs = performance.now();
  const grammar = await compiler.compile(output);
  const compileMs = performance.now() - compileStartMs;
  const processor = new GrammarLogitsProcessor(benchConfig(engineOptions("int8")), {
    vocabSize,
    grammarOf: (request) => (request as AddedSequence).grammar,
  });
  const logits = new StepLogits(numRows, vocabSize);
  logits.numRequests = numRows;
  const encoder = new LongestMatch(tokens);
  const targets = Array.from({ length: numRows }, (_, rowIndex) => [...encoder.encode(textOf(rowIndex)), eosTokenId]);
  const added = targets.map((_, index): AddedSequence => ({
    index,
    params: createSamplingParams(),
    promptTokenIds: [],
    outputTokenIds: [],
    badWordsTokenIds: [],
    grammar,
  }));
  const numSteps = Math.max(...targets.map((target, rowIndex) => target.length + rowIndex));
  const stepMs: number[] = [];
  for (let step = 0; step < numSteps; step++) {
    const startMs = performance.now();
    const update = { batchSize: numRows, removed: [], added, moved: [] };
    processor.updateState(step === 0 ? update : null);
    processor.apply(logits);
    const next = targets.map((target, rowIndex) => target[Math.max(0, step - rowIndex)] ?? eosTokenId);
    for (const [rowIndex, tokenId] of next.entries()) {
      const failure = processor.failureWith(rowIndex, tokenId, []);
      if (failure !== null) throw failure;
    }
    stepMs.push(performance.now() - startMs);
    for (const [rowIndex, tokenId] of next.entries())
      if (step >= rowIndex) (added[rowIndex]!.outputTokenIds as number[]).push(tokenId);
  }
  return { vocabularyMs, compileMs, stepMs };
}

export async function benchStructuredOutput(rounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const vocabSize of vocabSizes) {
    for (const scenario of scenarios) {
      const times: MaskTimes[] = [];
      for (let round = 0; round < rounds; round++) times.push(await measure(vocabSize, scenario));
      const name = `${scenario.name}, vocabulary ${vocabSize}`;
      reportProgress(`structured output: ${name}`);
      const worst = times.map(({ stepMs }) => Math.max(...stepMs));
      figures.push(
        plainFigure(
          `${name}: compile`,
          "ms",
          times.map(({ compileMs }) => compileMs),
        ),
        plainFigure(
          `${name}: median step`,
          "ms",
          times.map(({ stepMs }) => median(stepMs)),
        ),
        limitFigure({ name: `${name}: worst step`, unit: "ms", values: worst, comparison: "<=", limit: worstStepMs }),
      );
      if (scenario !== scenarios[0]) continue;
      figures.push(
        plainFigure(
          `vocabulary of ${vocabSize}: trie`,
          "ms",
          times.map(({ vocabularyMs }) => vocabularyMs),
        ),
      );
    }
  }
  return figures;
}
