/**
 * Divides normalised text into words, as the `pre_tokenizer` of a tokenizer.json says. The library's own classes use
 * JavaScript's `\s`, `\w` and `\d`, which differ from Unicode's, and lack most behaviours of a split.
 */
import { EngineError } from "../contract/errors.ts";
import { MAX_WORD_LENGTH } from "./text-pieces.ts";
import { characterOfByte } from "./token-bytes.ts";
import type { TokenizerComponent } from "./tokenizer-json.ts";

export interface PreTokenizer {
  /** Whether words are found one after the other. Otherwise the first word takes as long as all of them. */
  readonly isIncremental: boolean;
  /** `beginsText`: whether `text` starts the prompt, where some tokenizers add a space. No word is empty. */
  words(text: string, beginsText: boolean): Iterable<string>;
}

/** A pattern of tokenizer.json as a global expression with the flag `u`. Throws if it cannot be translated. */
export type CompilePattern = (pattern: unknown) => RegExp;

interface Words {
  readonly texts: readonly string[];
  /** Whether the first of them starts the prompt. */
  readonly beginText: boolean;
}

/** `isolated`: a step that makes a word of each match and of each text between matches, and could do it one by one. */
type Step = ((words: Words) => Words) & { readonly isolated?: RegExp };

/** How the matches of a pattern relate to the words: Hugging Face's `SplitDelimiterBehavior`. */
type Behavior = (typeof behaviors)[number];
const behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"] as const;

/** The pattern of Hugging Face's ByteLevel pre-tokenizer, which is GPT-2's. */
const byteLevelPattern =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;
const whiteSpacePattern = /\p{White_Space}/gu;
const wordPattern =
  /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\p{White_Space}]+/gu;
const punctuationPattern = /[\p{P}!-/:-@[-`{-~]/gu;
const numberPattern = /\p{N}/gu;

/** @throws EngineError `unsupported_model` for a kind of pre-tokenizer that is not known. */
export function createPreTokenizer(rule: TokenizerComponent | null, compile: CompilePattern): PreTokenizer {
  const steps = rule === null ? [] : stepsOf(rule, compile);
  const firstOther = steps.findIndex(({ isolated }) => isolated === undefined);
  const rest = firstOther === -1 ? [] : steps.slice(firstOther);
  const patterns = steps.slice(0, steps.length - rest.length).map(({ isolated }) => isolated!);
  return {
    isIncremental: patterns.length > 0,
    *words(text, beginsText) {
      let beginText = beginsText;
      for (const part of isolatedParts(text, patterns, 0)) {
        let words: Words = { texts: [part], beginText };
        for (const step of rest) words = step(words);
        yield* words.texts;
        beginText = false;
      }
    },
  };
}

/** The words of the first steps. A text of millions of words has each found only when it is needed. */
function* isolatedParts(text: string, patterns: readonly RegExp[], depth: number): Generator<string> {
  const pattern = patterns[depth];
  if (pattern === undefined) {
    if (text !== "") yield text;
    return;
  }
  for (const part of partsOf(text, pattern)) yield* isolatedParts(part.text, patterns, depth + 1);
}

function stepsOf(rule: TokenizerComponent, compile: CompilePattern): Step[] {
  switch (rule.type) {
    case "Sequence":
      return ((rule.pretokenizers ?? []) as TokenizerComponent[]).flatMap((part) => stepsOf(part, compile));
    case "ByteLevel":
      return byteLevelSteps(rule);
    case "Metaspace":
      return [metaspaceStep(rule)];
    case "Split":
      return [splitStep(compile(rule.pattern), behaviorOf(rule), rule.invert === true)];
    case "CharDelimiterSplit":
      return [splitStep(compile({ String: rule.delimiter }), "Removed")];
    case "Punctuation":
      return [splitStep(punctuationPattern, behaviorOf(rule))];
    case "Digits":
      return [splitStep(numberPattern, rule.individual_digits === true ? "Isolated" : "Contiguous")];
    case "Whitespace":
      return [splitStep(wordPattern, "Removed", true)];
    case "WhitespaceSplit":
      return [splitStep(whiteSpacePattern, "Removed")];
    case "BertPreTokenizer":
      return [splitStep(whiteSpacePattern, "Removed"), splitStep(punctuationPattern, "Isolated")];
    default:
      throw new EngineError("unsupported_model", `The tokenizer's pre-tokenizer "${rule.type}" is not supported.`);
  }
}

function behaviorOf({ type, behavior = "Isolated" }: TokenizerComponent): Behavior {
  const known = behaviors.find((name) => name === behavior);
  if (known !== undefined) return known;
  const problem = `The tokenizer's pre-tokenizer "${type}" has the unknown behavior ${JSON.stringify(behavior)}.`;
  throw new EngineError("unsupported_model", problem);
}

function eachWord(change: (text: string) => readonly string[]): Step {
  return ({ texts, beginText }) => ({ texts: texts.flatMap(change), beginText });
}

/** `isInverted`: the text between the matches takes their part, and they take its. */
function splitStep(pattern: RegExp, behavior: Behavior, isInverted = false): Step {
  if (behavior === "Isolated") {
    const isolate = eachWord((text) =>
      Array.from(partsOf(text, pattern), (part) => part.text).filter((part) => part !== ""),
    );
    return Object.assign(isolate, { isolated: pattern });
  }
  return ({ texts, beginText }) => {
    const words: string[] = [];
    let begins = beginText;
    for (const [index, text] of texts.entries()) {
      const parts = [...partsOf(text, pattern)].filter((part) => part.text !== "");
      if (isInverted) for (const part of parts) part.isMatch = !part.isMatch;
      if (index === 0 && behavior === "Removed" && parts[0]?.isMatch === true) begins = false;
      for (const word of joined(parts, behavior)) words.push(word);
    }
    return { texts: words, beginText: begins };
  };
}

interface Part {
  text: string;
  isMatch: boolean;
}

/** The matches and the texts between them, in order. */
function* partsOf(text: string, pattern: RegExp): Generator<Part> {
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    if (end < match.index) yield { text: text.slice(end, match.index), isMatch: false };
    yield { text: match[0], isMatch: true };
    end = match.index + match[0].length;
  }
  if (end < text.length) yield { text: text.slice(end), isMatch: false };
}

function joined(parts: readonly Part[], behavior: Exclude<Behavior, "Isolated">): string[] {
  if (behavior === "Removed") return parts.filter((part) => !part.isMatch).map((part) => part.text);
  const words: string[] = [];
  let before: Part | null = null;
  for (const part of parts) {
    if (before !== null && isJoined(before, part, behavior)) words[words.length - 1] += part.text;
    else words.push(part.text);
    before = part;
  }
  return words;
}

function isJoined(before: Part, part: Part, behavior: Exclude<Behavior, "Isolated" | "Removed">): boolean {
  switch (behavior) {
    case "MergedWithPrevious":
      return !before.isMatch && part.isMatch;
    case "MergedWithNext":
      return before.isMatch && !part.isMatch;
    case "Contiguous":
      return before.isMatch === part.isMatch;
  }
}

/** Older files have `add_prefix_space` instead of `prepend_scheme`. */
function metaspaceStep(rule: TokenizerComponent): Step {
  const { replacement: given, prepend_scheme: scheme, add_prefix_space: addsSpace, split } = rule;
  const replacement = typeof given === "string" ? given : "▁";
  const prepends = addsSpace === false ? "never" : (scheme ?? "always");
  return ({ texts, beginText }) => {
    const words: string[] = [];
    for (const [index, text] of texts.entries()) {
      let word = text.replaceAll(" ", replacement);
      const isPrepended = prepends === "always" || (prepends === "first" && beginText && index === 0);
      if (isPrepended && !word.startsWith(replacement)) word = replacement + word;
      if (split === false) words.push(word);
      else for (const part of splitBefore(word, replacement)) words.push(part);
    }
    return { texts: words, beginText };
  };
}

function splitBefore(text: string, mark: string): string[] {
  const parts: string[] = [];
  let start = 0;
  for (let end = text.indexOf(mark, 1); end !== -1; end = text.indexOf(mark, end + 1)) {
    parts.push(text.slice(start, end));
    start = end;
  }
  parts.push(text.slice(start));
  return parts;
}

function byteLevelSteps({ add_prefix_space: addsSpace, use_regex: usesPattern }: TokenizerComponent): Step[] {
  const steps: Step[] = [];
  // Hugging Face's default is true.
  if (addsSpace !== false) steps.push(eachWord((text) => [text.startsWith(" ") ? text : ` ${text}`]));
  if (usesPattern !== false) steps.push(splitStep(byteLevelPattern, "Isolated"));
  steps.push(eachWord((text) => [spelledInBytes(text)]));
  return steps;
}

/** Printable ASCII, whose bytes are spelled as themselves. */
const isSpelledAsItself = /^[!-~]*$/;

/** GPT-2's spelling of the UTF-8 bytes. Half a surrogate pair is U+FFFD. */
function spelledInBytes(text: string): string {
  // The tokenizer rejects a word that is too long, however it is spelled.
  if (text.length > MAX_WORD_LENGTH || isSpelledAsItself.test(text)) return text;
  let spelling = "";
  for (const byte of Buffer.from(text)) spelling += characterOfByte[byte]!;
  return spelling;
}
