/**
 * Compiled grammars that can be given to another thread.
 *
 * XGrammar compiles in a millisecond to many seconds, which the engine thread cannot give, and its WebAssembly build
 * has no serialised form of the result. Between two calls, however, a WebAssembly instance is nothing but its linear
 * memory: the memory of the instance that compiled a grammar, copied into a fresh instance on another thread, is that
 * grammar there, for about ten milliseconds. So every grammar has an instance of its own, and what breaks or leaks in
 * one stays in it and is freed with it.
 */
import type * as WebXGrammar from "@mlc-ai/web-xgrammar";

import { EngineError } from "../contract/errors.ts";
import { toEbnf } from "./choice-grammar.ts";
import { toEngineGrammar, toEnginePattern } from "./engine-pattern.ts";
import { findEndlessRule } from "./endless-rule.ts";
import { bytesOf } from "./grammar-vocabulary.ts";
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import { toEngineSchema } from "./json-schema.ts";
import { readLanguage } from "./language.ts";
import type { LanguageSource } from "./language.ts";
import { Recognizer } from "./recognizer.ts";
import { refuseStructuredOutput } from "./refusal.ts";
import type { StructuredOutput } from "./structured-output.ts";
import type { TokenBitmask } from "./token-bitmask.ts";
import { isPickyFirstByte, isWrongContinuation } from "./utf8-continuation.ts";
import { createLibrary, settle } from "./xgrammar-bundle.ts";
import type { XGrammarLibrary } from "./xgrammar-bundle.ts";

/** The memory of a WebAssembly instance. A plain value that can be posted to threads; not to be changed. */
export interface MemoryImage {
  /** From address 0 up to the last byte that is not 0, in shared memory, so that posting copies nothing. */
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  readonly memoryBytes: number;
  /** Address of the object that the image was taken for. */
  readonly address: number;
}

/** How the library refers to a C++ object: `$$.ptr` is its address. */
interface NativeHandle {
  readonly $$: { ptr: number };
  delete(): void;
}

interface MatcherHandle {
  /** A vector of 32-bit words: start and end address of its elements are its first two fields. */
  GetNextTokenBitmask(vocabSize: number): NativeHandle;
}

/** Of WebAssembly memory. */
const PAGE_BYTES = 65_536;
/** The one that explains a failure is followed by few others. */
const MAX_MESSAGES = 8;
const FATAL_MESSAGE = /^\[FATAL\] [^ ]+: (?:Check failed: .*? is false: )?(.*)$/s;

/** One instance of the WebAssembly module. Mutable. */
class Instance {
  readonly library: XGrammarLibrary;
  readonly #messages: string[] = [];
  // Set while the library is created.
  #memory!: WebAssembly.Memory;

  constructor(memoryBytes: number) {
    this.library = createLibrary({
      onMessage: (message) => {
        this.#messages.push(message);
        if (this.#messages.length > MAX_MESSAGES) this.#messages.shift();
      },
      onMemory: (memory) => {
        this.#memory = memory;
        const missingBytes = memoryBytes - memory.buffer.byteLength;
        if (missingBytes > 0) memory.grow(Math.ceil(missingBytes / PAGE_BYTES));
      },
    });
  }

  /** Views of the memory last until the next call into the instance, which may move it. */
  get memory(): ArrayBuffer {
    return this.#memory.buffer;
  }

  /** Up to the last byte that is not 0, rounded up to 8. */
  get usedBytes(): number {
    const words = new BigUint64Array(this.memory);
    let numWords = words.length;
    while (numWords > 0 && words[numWords - 1] === 0n) numWords--;
    return numWords * words.BYTES_PER_ELEMENT;
  }

  takeImage(address: number): MemoryImage {
    const bytes = new Uint8Array(new SharedArrayBuffer(this.usedBytes));
    bytes.set(new Uint8Array(this.memory, 0, bytes.length));
    return { bytes, memoryBytes: this.memory.byteLength, address };
  }

  /** Every object made before, except for those whose handles are given a new address, is gone. */
  restore({ bytes }: MemoryImage): void {
    const memory = new Uint8Array(this.memory);
    memory.set(bytes);
    memory.fill(0, bytes.length);
  }

  /** What the library had to say about its last failure; null when nothing. */
  get failureMessage(): string | null {
    const message = this.#messages.findLast((line) => FATAL_MESSAGE.test(line));
    return message === undefined ? null : FATAL_MESSAGE.exec(message)![1].trim().replace(/\.$/, "");
  }
}

/** A compiler for one vocabulary, ready to compile; making it takes up to a few hundred milliseconds. */
export function createCompilerImage(vocabulary: GrammarVocabulary): MemoryImage {
  const instance = new Instance(0);
  const tokens = Array.from({ length: vocabulary.vocabSize }, (_, tokenId) => bytesOf(vocabulary, tokenId));
  const compiler = createCompiler(instance, tokens, vocabulary.vocabSize, vocabulary.eosTokenIds);
  return instance.takeImage(addressOf(compiler));
}

/** Errors cross threads as data. */
export type CompilationResult =
  | { readonly kind: "compiled"; readonly image: MemoryImage; readonly source: LanguageSource }
  /** A sentence without its full stop, with XGrammar's words where it has any. */
  | { readonly kind: "refused"; readonly problem: string };

/** Compiles for as long as it takes. Whatever goes wrong is put down to the structured output. */
export function compileGrammar(compilerImage: MemoryImage, structuredOutput: StructuredOutput): CompilationResult {
  const instance = new Instance(compilerImage.memoryBytes);
  const compiler = createCompiler(instance, [Uint8Array.of(0)], 1, [0]);
  instance.restore(compilerImage);
  setAddress(compiler, compilerImage.address);
  try {
    const { grammar, source } = compile(instance.library, compiler, structuredOutput);
    // Whatever it has against it is told here instead of where the text is made.
    const language = readLanguage(source);
    const endless = findEndlessRule(language);
    if (endless !== null)
      refuseStructuredOutput(`No text can have this form: its rule ${endless} never comes to an end`);
    void new Recognizer(language);
    return { kind: "compiled", image: instance.takeImage(addressOf(grammar)), source };
  } catch (error) {
    if (error instanceof EngineError) return { kind: "refused", problem: error.message.replace(/\.$/, "") };
    const reason = instance.failureMessage ?? "it is too complex";
    return { kind: "refused", problem: `The structured output cannot be enforced: ${reason}` };
  }
}

const anyObject = JSON.stringify({ type: "object", additionalProperties: true });

function compile(
  library: XGrammarLibrary,
  compiler: WebXGrammar.GrammarCompiler,
  structuredOutput: StructuredOutput,
): { readonly grammar: WebXGrammar.CompiledGrammar; readonly source: LanguageSource } {
  switch (structuredOutput.kind) {
    // The library's own grammar of JSON takes arrays as well.
    case "json-object":
    case "json-schema": {
      const schema = structuredOutput.kind === "json-object" ? anyObject : structuredOutput.schema;
      const grammar = jsonSchemaGrammar(library, schema);
      return { grammar: compileEbnf(compiler, grammar), source: { kind: "grammar", grammar } };
    }
    case "regex": {
      const pattern = toEnginePattern(structuredOutput.pattern, { isInJson: false });
      const grammar = settle(() => compiler.compileStructuralTag({ type: "regex", pattern }));
      return { grammar, source: structuredOutput };
    }
    case "choice": {
      const grammar = settle(() => compiler.compileGrammar(toEbnf(structuredOutput.choices, "root")));
      return { grammar, source: structuredOutput };
    }
    case "grammar": {
      const text = toEngineGrammar(structuredOutput.grammar);
      return { grammar: compileEbnf(compiler, text), source: structuredOutput };
    }
    default:
      return structuredOutput satisfies never;
  }
}

/**
 * XGrammar's masks leave out tokens that go past the end of the start rule, also where a rule within it has called it:
 * the start becomes a rule that nothing calls.
 */
function compileEbnf(compiler: WebXGrammar.GrammarCompiler, grammar: string): WebXGrammar.CompiledGrammar {
  const mentions = grammar.match(/(?<![\w.-])root(?![\w.-])/g) ?? [];
  if (mentions.length < 2) return settle(() => compiler.compileGrammar(grammar));
  let start = "start";
  while (grammar.includes(start)) start += "_";
  return settle(() => compiler.compileGrammar(`${grammar}\n${start} ::= root`, start));
}

/** XGrammar writes two digits after \x and reads as many as there are. */
function spellOut(grammar: string): string {
  return grammar.replaceAll(/\\(?:x([0-9a-f]{2})|.)/gs, (escape, hex) => (hex === undefined ? escape : `\\u00${hex}`));
}

/** As EBNF, in which rules take the place of the constants that stand for alternatives. */
function jsonSchemaGrammar(library: XGrammarLibrary, text: string): string {
  const { schema, rules } = toEngineSchema(text);
  let grammar = spellOut(settle(() => library.Grammar.fromJSONSchema(schema)).toString());
  for (const [name, rule] of rules) {
    const constant = `"\\"${name}\\""`;
    // A definition that nothing refers to is not part of the grammar.
    if (!grammar.includes(constant)) continue;
    grammar = `${grammar.replaceAll(constant, name)}\n${rule}`;
  }
  return grammar;
}

/** A compiled grammar on this thread. What its matchers throw is a failure of the library: drop grammar and matchers. */
export class LoadedGrammar {
  readonly #instance: Instance;
  readonly #grammar: WebXGrammar.CompiledGrammar;
  readonly #vocabulary: GrammarVocabulary;

  /** Blocks for about ten milliseconds. `vocabulary` is the one that the grammar was compiled for. */
  constructor(image: MemoryImage, vocabulary: GrammarVocabulary) {
    this.#instance = new Instance(image.memoryBytes);
    const compiler = createCompiler(this.#instance, [Uint8Array.of(0)], 1, [0]);
    this.#grammar = settle(() => compiler.compileGrammar('root ::= "x"'));
    this.#instance.restore(image);
    setAddress(this.#grammar, image.address);
    this.#vocabulary = vocabulary;
    // Asked for by every new matcher, which would leak the object it gets.
    const tokenizerInfo = this.#grammar.tokenizerInfo();
    this.#grammar.tokenizerInfo = () => tokenizerInfo;
  }

  /** Memory up to the last byte that is not 0. */
  get usedBytes(): number {
    return this.#instance.usedBytes;
  }

  createMatcher(): TokenMatcher {
    const matcher = settle(() => this.#instance.library.GrammarMatcher.createGrammarMatcher(this.#grammar));
    return new TokenMatcher(this.#instance, matcher, this.#vocabulary);
  }
}

/** How far one text has come in a grammar. Mutable; owns memory of its grammar's instance. */
export class TokenMatcher implements Disposable {
  readonly #instance: Instance;
  readonly #matcher: WebXGrammar.GrammarMatcher;
  readonly #vocabulary: GrammarVocabulary;
  /** The last byte of the accepted tokens. */
  #lastByte = 0;

  constructor(instance: Instance, matcher: WebXGrammar.GrammarMatcher, vocabulary: GrammarVocabulary) {
    this.#instance = instance;
    this.#matcher = matcher;
    this.#vocabulary = vocabulary;
  }

  /** Whether an end token was accepted; nothing more can be. */
  get isTerminated(): boolean {
    return this.#matcher.isTerminated();
  }

  /** False, and no change, when the grammar does not allow the token here. */
  accept(tokenId: number): boolean {
    const bytes = bytesOf(this.#vocabulary, tokenId);
    if (bytes.length > 0 && isWrongContinuation(this.#lastByte, bytes[0])) return false;
    if (!this.#matcher.acceptToken(tokenId)) return false;
    this.#lastByte = bytes.at(-1) ?? 0;
    return true;
  }

  /** Not to be called once terminated. */
  fillBitmask(bitmask: TokenBitmask): void {
    const handle = (this.#matcher as unknown as { readonly handle: MatcherHandle }).handle;
    const vector = handle.GetNextTokenBitmask(this.#vocabulary.vocabSize);
    const [start] = new Uint32Array(this.#instance.memory, vector.$$.ptr, 1);
    bitmask.set(new Int32Array(this.#instance.memory, start, bitmask.length));
    vector.delete();
    if (isPickyFirstByte(this.#lastByte)) this.#forbidWrongContinuations(bitmask);
  }

  [Symbol.dispose](): void {
    this.#matcher.dispose();
  }

  #forbidWrongContinuations(bitmask: TokenBitmask): void {
    for (let tokenId = 0; tokenId < this.#vocabulary.vocabSize; tokenId++) {
      const bytes = bytesOf(this.#vocabulary, tokenId);
      if (bytes.length > 0 && isWrongContinuation(this.#lastByte, bytes[0]))
        bitmask[tokenId >> 5] &= ~(1 << (tokenId & 31));
    }
  }
}

function createCompiler(
  { library }: Instance,
  tokens: readonly Uint8Array[],
  vocabSize: number,
  eosTokenIds: readonly number[],
): WebXGrammar.GrammarCompiler {
  // The library passes the tokens on to C++ strings, which take bytes as well.
  const rawTokens = tokens as readonly unknown[] as string[];
  const tokenizer = settle(() =>
    library.TokenizerInfo.createTokenizerInfo(rawTokens, "raw", false, vocabSize, [...eosTokenIds]),
  );
  return settle(() => library.GrammarCompiler.createGrammarCompiler(tokenizer, false));
}

function addressOf(object: { readonly handle: NativeHandle }): number {
  return object.handle.$$.ptr;
}

function setAddress(object: { readonly handle: NativeHandle }, address: number): void {
  object.handle.$$.ptr = address;
}
