import { expect, test } from "vitest";

import { checkStructuredOutput } from "../../../engine/structured-output/check-structured-output.ts";
import { compileProgram } from "../../../engine/structured-output/compiled-grammar.ts";
import { GrammarRow } from "../../../engine/structured-output/grammar-row.ts";
import { createGrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import type { GrammarVocabulary } from "../../../engine/structured-output/grammar-vocabulary.ts";
import { LoadedGrammars } from "../../../engine/structured-output/loaded-grammars.ts";
import { describeStructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import type { StructuredOutput } from "../../../engine/structured-output/structured-output.ts";
import { createTokenBitmask } from "../../../engine/structured-output/token-bitmask.ts";
import { FIRST_UNITS, MAX_STEP_UNITS, UNITS_PER_TOKEN } from "../../../engine/structured-output/work-limits.ts";
import { attacks, slowSources, tooAmbiguous } from "./attacks.ts";
import { createRandom, shapesVocabulary, tokensOf } from "./grammars.ts";

const { tokenizer, vocabSize, eosTokenIds } = shapesVocabulary;
const vocabulary = await createGrammarVocabulary(tokenizer, vocabSize, eosTokenIds);
/** Work is counted after it is done, so a step exceeds the limit by one entry at most. */
const oneEntry = 1_000_000;
const numSteps = 200;

interface Row {
  readonly row: GrammarRow;
  readonly tokenIds: number[];
  readonly grammars: LoadedGrammars;
  readonly numSpent: () => number;
}

function begin(grammars: LoadedGrammars, output: StructuredOutput, known: GrammarVocabulary = vocabulary): Row {
  checkStructuredOutput(output);
  const grammar = {
    id: JSON.stringify(output),
    description: describeStructuredOutput(output),
    program: compileProgram(output),
    vocabulary: known,
  };
  const loaded = grammars.open(grammar);
  const tokenIds: number[] = [];
  return { row: new GrammarRow(loaded, grammar, tokenIds), tokenIds, grammars, numSpent: () => loaded.meter.numSpent };
}

/** The tokens that can come next. */
function look({ row }: Row, size: number = vocabSize): number[] {
  row.acceptNewTokens();
  const bitmask = createTokenBitmask(size);
  row.fillBitmask(bitmask);
  return tokensOf(bitmask, size);
}

/** A row with an ordinary form. */
const innocent: StructuredOutput = { kind: "regex", pattern: "(red|green|blue)( and (red|green|blue))*" };

test.for(attacks)("%s: each step is bounded, and the row beside it gets all its tokens", ([, output]) => {
  const grammars = new LoadedGrammars();
  const hostile = begin(grammars, output);
  const beside = begin(grammars, innocent);
  const random = createRandom(1);
  let spentBefore = hostile.numSpent();
  let isOver = false;
  for (let step = 0; step < numSteps; step++) {
    const allowed: number[] = isOver ? [] : look(hostile);
    const spent = hostile.numSpent() - spentBefore;
    spentBefore = hostile.numSpent();
    expect(spent, `step ${step}`).toBeLessThanOrEqual(MAX_STEP_UNITS + oneEntry);
    isOver = allowed.every((id) => eosTokenIds.includes(id));
    const texts = allowed.filter((id) => !eosTokenIds.includes(id));
    if (!isOver) hostile.tokenIds.push(texts[Math.floor(random() * texts.length)]!);
    const others = look(beside).filter((id) => !eosTokenIds.includes(id));
    expect(others.length).toBeGreaterThan(0);
    beside.tokenIds.push(others[Math.floor(random() * others.length)]!);
  }
  expect(beside.row.failure).toBeNull();
  expect(beside.tokenIds).toHaveLength(numSteps);
  expect(spentBefore).toBeLessThanOrEqual(FIRST_UNITS + numSteps * UNITS_PER_TOKEN + oneEntry);
  if (hostile.row.failure === null) return;
  expect(hostile.row.failure).toMatchObject({
    code: "invalid_argument",
    parameter: "samplingParams.structuredOutput",
    message: expect.stringContaining(`${describeStructuredOutput(output)} is too expensive`),
  });
});

test("a form with too many readings ends its request with an error that names it", () => {
  const output: StructuredOutput = { kind: "grammar", grammar: 'root ::= root root | "a" | ""' };
  const hostile = begin(new LoadedGrammars(), output);
  const a = tokenizer.tokenId("a")!;
  while (hostile.row.failure === null && hostile.tokenIds.length < 2000) {
    look(hostile);
    hostile.tokenIds.push(a);
  }
  expect(hostile.row.failure?.message).toBe(
    'The structured output grammar "root ::= root root | \\"a\\" | \\"\\"" is too expensive to follow: its text can be read in too many ways. Make it less ambiguous, or make its counts smaller.',
  );
  const spent = hostile.numSpent();
  for (let step = 0; step < 10; step++) expect(look(hostile)).toEqual([]);
  expect(hostile.numSpent()).toBe(spent);
});

test("a form that is too ambiguous from its first token is rejected before it starts", () => {
  expect(() => compileProgram(tooAmbiguous)).toThrow("can begin in too many ways; make it less ambiguous");
});

test.for(slowSources)("%s are read in a time that depends only on the size of the source", ([, output]) => {
  expect(() => {
    checkStructuredOutput(output);
    compileProgram(output);
  }).toThrow(expect.objectContaining({ code: "invalid_argument" }));
});
