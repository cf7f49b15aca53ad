/** Compiles structured outputs into the form that the engine thread uses. */
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import { toProgramInSlices } from "./language-program.ts";
import { readLanguage } from "./language.ts";
import type { Program } from "./program.ts";
import { Recognizer } from "./recognizer.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import { refuseEndlessRules } from "./rule-properties.ts";
import { describeStructuredOutput } from "./structured-output.ts";
import type { StructuredOutput } from "./structured-output.ts";
import { MAX_STEP_UNITS } from "./work-limits.ts";
import { WorkMeter, TooMuchWork } from "./work-meter.ts";

/** A plain value. Posting it to a thread copies none of its bytes. */
export interface CompiledGrammar {
  /** Equal for equal structured outputs. */
  readonly id: string;
  /** The structured output as shown in messages. */
  readonly description: string;
  readonly program: Program;
  readonly vocabulary: GrammarVocabulary;
}

/**
 * Compiles a structured output that was checked. Takes time in proportion to its source, in slices of at most tens of
 * milliseconds. Throws EngineError `invalid_argument`.
 */
export function* compileInSlices(structuredOutput: StructuredOutput): Generator<void, Program> {
  const language = readLanguage(structuredOutput);
  yield;
  refuseEndlessRules(language);
  const program = yield* toProgramInSlices(language);
  yield;
  const meter = new WorkMeter();
  meter.allow(MAX_STEP_UNITS);
  try {
    void new Recognizer(program, meter).start();
  } catch (error) {
    if (!(error instanceof TooMuchWork)) throw error;
    const description = describeStructuredOutput(structuredOutput);
    refuseStructuredOutput(`The structured output ${description} can begin in too many ways; make it less ambiguous`);
  }
  return program;
}

/** Runs all slices at once. */
export function compileProgram(structuredOutput: StructuredOutput): Program {
  const slices = compileInSlices(structuredOutput);
  let slice = slices.next();
  while (slice.done !== true) slice = slices.next();
  return slice.value;
}
