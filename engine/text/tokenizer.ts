/**
 * Converts text to token ids and back like Hugging Face's fast tokenizers. Only this file imports the
 * package @huggingface/tokenizers.
 */
import { Tokenizer as HuggingFaceTokenizer } from "@huggingface/tokenizers";

import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
import { AddedTokenSplitter } from "./added-tokens.ts";
import type { AddedToken, TextRange } from "./added-tokens.ts";
import { createLongTextNormalizer } from "./long-text-normalizer.ts";
import type { NormalizeLongText } from "./long-text-normalizer.ts";
import { faithfulNormalizer } from "./normalizer-rules.ts";
import { createPreTokenizer } from "./pre-tokenizer.ts";
import type { PreTokenizer } from "./pre-tokenizer.ts";
import { SharedTurns } from "./shared-turns.ts";
import { cutAtWords, MAX_PIECE_LENGTH, MAX_WORD_LENGTH, PIECE_LENGTH } from "./text-pieces.ts";
import type { Piece } from "./text-pieces.ts";
import { createTextStartRule } from "./text-start-rule.ts";
import { createTokenBytes } from "./token-bytes.ts";
import {
  namedTokensOf,
  parseTokenizerConfig,
  parseTokenizerJson,
  tryReadCheckpointFile,
  vocabularyOf,
  withConfiguredTokens,
  withSpecialTokensMap,
} from "./tokenizer-json.ts";
import type { TokenizerConfig, TokenizerJson } from "./tokenizer-json.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** For models of which the library passes the tokens of a word as arguments of one call. V8 allows 120,000. */
const MAX_UNIGRAM_WORD_LENGTH = 2 ** 16;
/** Tokens decoded at once, in about as much time. */
const DECODED_AT_ONCE = 16_384;
/** A space inside a token, in the spellings of the supported vocabularies. */
const innerSpace = /.[ ▁Ġ]/u;
/** U+FFFD: bytes that may be the end of a letter. */
const spaceAfterLetter = /[\p{L}\uFFFD][ ▁]/u;

export interface EncodeOptions {
  /** Adds the checkpoint's tokens around a text (usually a beginning token). Chat templates write their own. */
  readonly addSpecialTokens: boolean;
  /** Ranges of the text, in order, in which the spelling of an added token is ordinary text. */
  readonly literal?: readonly TextRange[];
  /** Encoding stops early with null once there are certainly more tokens than this. */
  readonly maxTokens?: number;
  readonly signal?: AbortSignal;
}

/** A token that the checkpoint may lack. */
export interface ExtraToken {
  readonly content: string;
  /** Ids from here on are free in the model. */
  readonly firstFreeId: number;
}

/** Older checkpoints have only files of sentencepiece, or a vocabulary and merges. */
const howToWriteTokenizer =
  "If it has another form of tokenizer, AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers writes it, in Python.";

/**
 * Reads tokenizer.json, tokenizer_config.json and special_tokens_map.json; throws `invalid_checkpoint` or
 * `unsupported_model`.
 *
 * @param extraToken Added as a special token unless the tokenizer has it.
 */
export async function loadTokenizer(folder: string, extraToken?: ExtraToken): Promise<Tokenizer> {
  const [json, config, specialTokensMap] = await Promise.all([
    tryReadCheckpointFile(folder, "tokenizer.json"),
    tryReadCheckpointFile(folder, "tokenizer_config.json"),
    tryReadCheckpointFile(folder, "special_tokens_map.json"),
  ]);
  if (json === null)
    throw new EngineError("invalid_checkpoint", `The checkpoint has no tokenizer.json. ${howToWriteTokenizer}`);
  return parseTokenizer(json, config ?? "{}", { extraToken, specialTokensMap });
}

export interface OtherTokens {
  readonly extraToken?: ExtraToken | undefined;
  /** The text of special_tokens_map.json; null, the default, if there is none. */
  readonly specialTokensMap?: string | null;
}

/** Parses the texts of the files. */
export function parseTokenizer(
  tokenizerJson: string,
  tokenizerConfig: string,
  { extraToken, specialTokensMap = null }: OtherTokens = {},
): Tokenizer {
  const config = withSpecialTokensMap(parseTokenizerConfig(tokenizerConfig), specialTokensMap);
  const json = withConfiguredTokens(parseTokenizerJson(tokenizerJson), config);
  return new Tokenizer(extraToken ? withToken(json, extraToken) : json, config);
}

function withToken(json: TokenizerJson, { content, firstFreeId }: ExtraToken): TokenizerJson {
  const vocabulary = vocabularyOf(json.model);
  if (vocabulary.includes(content) || json.added_tokens.some((token) => token.content === content)) return json;
  const id = json.added_tokens.reduce(
    (free, token) => Math.max(free, token.id + 1),
    Math.max(firstFreeId, vocabulary.length),
  );
  const token = { id, content, special: true, normalized: false, single_word: false, lstrip: false, rstrip: false };
  return { ...json, added_tokens: [...json.added_tokens, token] };
}

export class Tokenizer implements Vocabulary {
  readonly eosToken: string | null;
  /** Special tokens under the names that chat templates use, such as `bos_token`. */
  readonly namedTokens: Readonly<Record<string, string>>;
  readonly #library: HuggingFaceTokenizer;
  /** Null if texts are not normalised. */
  readonly #normalize: NormalizeLongText | null;
  readonly #preTokenizer: PreTokenizer;
  readonly #maxWordLength: number;
  readonly #inText: AddedTokenSplitter;
  readonly #inNormalizedText: AddedTokenSplitter;
  /** Added tokens that are matched in normalised text; they are decoded as they are matched. */
  readonly #normalizedContents: ReadonlyMap<number, string>;
  readonly #specialIds: ReadonlySet<number>;
  readonly #addedIds: ReadonlyMap<string, number>;
  /** Tokens that `addSpecialTokens` puts before a text. */
  readonly prefixIds: readonly number[];
  readonly #suffixIds: readonly number[];
  readonly #toBytes: (token: string) => Uint8Array;
  readonly #withoutTextStart: (text: string, firstToken: string) => string;
  /** Bytes of the tokens requested so far, by id. */
  readonly #bytesOf: (Uint8Array | undefined)[] = [];
  /** Whether words are encoded independently of each other; determined when the first long text arrives. */
  #hasIndependentWords: boolean | null = null;
  readonly #turns = new SharedTurns(PIECE_LENGTH);
  /** Maximum number of characters of a token; null if a token may stand for any number. */
  #longestToken: number | null = null;

  constructor(json: TokenizerJson, config: TokenizerConfig) {
    this.#library = createLibraryTokenizer(json, config);
    this.#preTokenizer = aboutTokenizerJson(() => createPreTokenizer(json.pre_tokenizer, compilePattern));
    const { normalizer } = this.#library;
    this.#normalize =
      normalizer === null || json.normalizer === null ? null : createLongTextNormalizer(normalizer, json.normalizer);
    this.#maxWordLength = json.model.type === "Unigram" ? MAX_UNIGRAM_WORD_LENGTH : MAX_WORD_LENGTH;
    const inText: AddedToken[] = [];
    const inNormalizedText: AddedToken[] = [];
    for (const { id, content, special, ...token } of json.added_tokens) {
      const isNormalized = token.normalized ?? !special;
      (isNormalized ? inNormalizedText : inText).push({
        id,
        content: isNormalized && normalizer !== null ? normalizer.normalize(content) : content,
        singleWord: token.single_word,
        stripLeft: token.lstrip,
        stripRight: token.rstrip,
      });
    }
    this.#inText = new AddedTokenSplitter(inText);
    this.#inNormalizedText = new AddedTokenSplitter(inNormalizedText);
    this.#normalizedContents = new Map(inNormalizedText.map((token) => [token.id, token.content]));
    this.#addedIds = new Map(json.added_tokens.map((token) => [token.content, token.id]));
    this.#specialIds = new Set(json.added_tokens.filter((token) => token.special).map((token) => token.id));
    this.#toBytes = createTokenBytes(json.decoder);
    this.#withoutTextStart = createTextStartRule(json.decoder);
    this.namedTokens = namedTokensOf(config);
    this.eosToken = config.eos_token;
    const surroundings = this.#postProcessorTokens();
    this.prefixIds = configuredToken(config.add_bos_token, this.#idOf(config.bos_token)) ?? surroundings.prefix;
    this.#suffixIds = configuredToken(config.add_eos_token, this.#idOf(config.eos_token)) ?? surroundings.suffix;
  }

  /** The id of the token with exactly this text; null if there is none. */
  tokenId(token: string): number | null {
    return this.#addedIds.get(token) ?? this.#library.token_to_id(token) ?? null;
  }

  /** The token in the vocabulary's spelling; null for an id without one. */
  token(tokenId: number): string | null {
    return this.#library.id_to_token(tokenId) ?? null;
  }

  isSpecial(tokenId: number): boolean {
    return this.#specialIds.has(tokenId);
  }

  tokenBytes(tokenId: number): Uint8Array {
    let bytes = this.#bytesOf[tokenId];
    if (bytes === undefined) {
      const token = this.#decodedToken(tokenId);
      bytes = token === null ? new Uint8Array() : this.#toBytes(token);
      this.#bytesOf[tokenId] = bytes;
    }
    return bytes;
  }

  /**
   * Returns the token ids of `text`, equal to those of Hugging Face's `encode`; null if there are more than
   * `maxTokens`. Yields to the event loop every few thousand characters. Rejects with the signal's reason when aborted,
   * and with EngineError `invalid_argument` for a word that is too long.
   */
  async encode(text: string, options: EncodeOptions): Promise<number[] | null> {
    const maxTokens = options.maxTokens ?? Number.POSITIVE_INFINITY;
    const tokenIds: number[] = options.addSpecialTokens ? [...this.prefixIds] : [];
    const { signal } = options;
    await this.#turns.take(Math.min(text.length, PIECE_LENGTH), signal);
    let numSinceTurn = 0;
    for (const unit of this.#units(text, options.literal)) {
      if (unit === null) {
        await this.#turns.take(PIECE_LENGTH, signal);
        numSinceTurn = 0;
      } else if (typeof unit === "number") {
        tokenIds.push(unit);
      } else {
        if (this.#leastTokens(unit.text) > maxTokens - tokenIds.length) return null;
        for (const { words, length } of this.#words(unit)) {
          numSinceTurn += length;
          if (numSinceTurn > PIECE_LENGTH) {
            await this.#turns.take(PIECE_LENGTH, signal);
            numSinceTurn = length;
          }
          for (const token of this.#encodeWords(words)) tokenIds.push(token);
          if (tokenIds.length > maxTokens) return null;
        }
      }
      if (tokenIds.length > maxTokens) return null;
    }
    if (options.addSpecialTokens) tokenIds.push(...this.#suffixIds);
    return tokenIds.length > maxTokens ? null : tokenIds;
  }

  /** The text of the tokens, special tokens included. Invalid UTF-8 becomes U+FFFD. */
  decode(tokenIds: readonly number[]): string {
    return Buffer.concat(tokenIds.map((tokenId) => this.tokenBytes(tokenId))).toString();
  }

  /**
   * The text of the tokens as Hugging Face decodes it on its own, not after a prompt: without the space that some
   * tokenizers put before a text. Yields to the event loop every few thousand tokens.
   */
  async detokenize(tokenIds: readonly number[]): Promise<string> {
    const bytes: Uint8Array[] = [];
    for (let start = 0; start < tokenIds.length; start += DECODED_AT_ONCE) {
      const part = tokenIds.slice(start, start + DECODED_AT_ONCE);
      await this.#turns.take((PIECE_LENGTH * part.length) / DECODED_AT_ONCE);
      bytes.push(Buffer.concat(part.map((tokenId) => this.tokenBytes(tokenId))));
    }
    const text = Buffer.concat(bytes).toString();
    const [first] = tokenIds;
    return first === undefined ? text : this.#withoutTextStart(text, this.#decodedToken(first) ?? "");
  }

  #decodedToken(tokenId: number): string | null {
    return this.#normalizedContents.get(tokenId) ?? this.token(tokenId);
  }

  /** Added tokens as ids; the text between them normalised and in pieces; null where other work may be done. */
  *#units(text: string, literal: readonly TextRange[] | undefined): Iterable<number | Piece | null> {
    for (const section of this.#inText.split(text, literal)) {
      if (section.kind !== "text") {
        yield section.kind === "token" ? section.id : null;
        continue;
      }
      const normalized = this.#normalize === null ? section.text : yield* this.#normalize(section.text);
      for (const part of this.#inNormalizedText.split(normalized)) {
        if (part.kind === "text") yield* this.#pieces(part.text, section.start === 0 && part.start === 0);
        else yield part.kind === "token" ? part.id : null;
      }
    }
  }

  *#pieces(text: string, beginsText: boolean): Iterable<Piece> {
    const isCut = text.length > PIECE_LENGTH && this.#areWordsIndependent();
    if (isCut) yield* cutAtWords(text, beginsText);
    else yield { text, beginsText };
  }

  /** The words of a piece, in groups that are encoded at once. */
  *#words({ text, beginsText }: Piece): Iterable<WordGroup> {
    const { isIncremental } = this.#preTokenizer;
    if (text.length > MAX_PIECE_LENGTH && !isIncremental) throw withoutSpace();
    let group: string[] = [];
    let length = 0;
    for (const word of this.#findWords(text, beginsText)) {
      if (word.length > this.#maxWordLength) throw wordTooLong(word, this.#maxWordLength);
      if (group.length > 0 && length + word.length > PIECE_LENGTH) {
        yield { words: group, length };
        group = [];
        length = 0;
      }
      group.push(word);
      length += word.length;
    }
    if (group.length > 0) yield { words: group, length };
  }

  *#findWords(text: string, beginsText: boolean): Iterable<string> {
    try {
      yield* this.#preTokenizer.words(text, beginsText);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      // An expression needs more than V8's stack for a match of 8 million characters.
      throw refusal(`The prompt has a word of more than ${this.#maxWordLength} characters, which is the limit.`);
    }
  }

  #encodeWords(words: string[]): number[] {
    const { model } = this.#library;
    if (model === null) return [];
    const tokenIds: number[] = [];
    for (const word of words) {
      // One call for each word: the library would join unknown parts of adjacent words into one token.
      for (const token of model._call([word])) {
        const tokenId = model.tokens_to_ids.get(token);
        if (tokenId !== undefined) tokenIds.push(tokenId);
        // An unknown text as long as a word has too many bytes for a spread.
        else for (const unknownId of this.#unknownIds(token)) tokenIds.push(unknownId);
      }
    }
    return tokenIds;
  }

  /** The bytes of a text without a token, if the vocabulary falls back to bytes; otherwise the unknown token. */
  #unknownIds(text: string): readonly number[] {
    const { model } = this.#library;
    const unknown = model?.unk_token_id === undefined ? [] : [model.unk_token_id];
    if (!this.#fallsBackToBytes) return unknown;
    const byteIds: number[] = [];
    for (const byte of Buffer.from(text)) {
      const tokenId = model?.tokens_to_ids.get(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
      if (tokenId === undefined) return unknown;
      byteIds.push(tokenId);
    }
    return byteIds;
  }

  /** A cheap lower bound, so that a word of a million letters is not encoded only to be rejected. */
  #leastTokens(text: string): number {
    if (text.length <= PIECE_LENGTH) return 0;
    this.#areWordsIndependent();
    return this.#longestToken === null ? 0 : text.length / this.#longestToken;
  }

  /** True if no token crosses the end of a word, so that words can be encoded one by one. */
  #areWordsIndependent(): boolean {
    if (this.#hasIndependentWords !== null) return this.#hasIndependentWords;
    this.#hasIndependentWords = true;
    const decoder = new TextDecoder();
    let longest = 1;
    for (const [token] of this.#library.get_vocab(false)) {
      if (token === undefined || this.#addedIds.has(token)) continue;
      longest = Math.max(longest, token.length);
      if (innerSpace.test(token) && spaceAfterLetter.test(decoder.decode(this.#toBytes(token)))) {
        this.#hasIndependentWords = false;
      }
    }
    const hasUnknown = this.#library.model?.unk_token_id !== undefined;
    this.#longestToken = this.#fallsBackToBytes || !hasUnknown ? longest : null;
    return this.#hasIndependentWords;
  }

  get #fallsBackToBytes(): boolean {
    return (this.#library.model?.config as { byte_fallback?: boolean } | undefined)?.byte_fallback === true;
  }

  #idOf(token: string | null): readonly number[] | null {
    const tokenId = token === null ? null : this.tokenId(token);
    return tokenId === null ? null : [tokenId];
  }

  #postProcessorTokens(): { readonly prefix: readonly number[]; readonly suffix: readonly number[] } {
    const postProcessor = this.#library.post_processor;
    if (postProcessor === null) return { prefix: [], suffix: [] };
    const text = "\u0000text\u0000";
    const { tokens } = postProcessor.post_process([text], null, true);
    const index = tokens.indexOf(text);
    const toIds = (names: string[]): number[] => names.flatMap((name) => this.tokenId(name) ?? []);
    return { prefix: toIds(tokens.slice(0, index)), suffix: toIds(tokens.slice(index + 1)) };
  }
}

interface WordGroup {
  readonly words: string[];
  /** Characters of the words together, in the spelling of the vocabulary. */
  readonly length: number;
}

function wordTooLong({ length }: string, limit: number): EngineError {
  return refusal(`The prompt has a word of ${length} characters; the limit is ${limit}.`);
}

function withoutSpace(): EngineError {
  return refusal(
    `The prompt has a text without a space between letters of more than ${MAX_PIECE_LENGTH} characters, which is the limit.`,
  );
}

function refusal(message: string): EngineError {
  return new EngineError("invalid_argument", message, { parameter: "prompt" });
}

/**
 * An explicit `add_bos_token` or `add_eos_token` overrides tokenizer.json, as in Llama's class of transformers 4; null if
 * absent.
 */
function configuredToken(isAdded: boolean | null, tokenIds: readonly number[] | null): readonly number[] | null {
  if (isAdded === null) return null;
  return isAdded ? tokenIds : [];
}

function createLibraryTokenizer(json: TokenizerJson, config: TokenizerConfig): HuggingFaceTokenizer {
  const model = { ...json.model };
  const normalizer = json.normalizer === null ? null : faithfulNormalizer(json.normalizer);
  return aboutTokenizerJson(() => {
    const library = new HuggingFaceTokenizer({ ...json, model, normalizer, pre_tokenizer: null }, config);
    // The library adds them to the model, which would then find them in ordinary text.
    const ownTokens = new Set(vocabularyOf(model));
    for (const { content } of json.added_tokens) {
      if (!ownTokens.has(content)) library.model?.tokens_to_ids.delete(content);
    }
    // The library has copied these into maps and would keep the originals: megabytes each.
    delete model.vocab;
    delete model.merges;
    if (library.model !== null && "merges" in library.model) library.model.merges = [];
    return library;
  });
}

/** Translates an expression of Oniguruma, which Hugging Face uses. The library does so only for a whole tokenizer. */
function compilePattern(pattern: unknown): RegExp {
  const { Regex: expression, String: text } = (pattern ?? {}) as {
    readonly Regex?: unknown;
    readonly String?: unknown;
  };
  if (typeof expression !== "string" && typeof text !== "string") {
    throw new TypeError("the pattern of a pre-tokenizer is neither an expression nor a text");
  }
  const { pre_tokenizer: split } = new HuggingFaceTokenizer(
    {
      added_tokens: [],
      normalizer: null,
      pre_tokenizer: { type: "Split", pattern, behavior: "Isolated", invert: false },
      model: { type: "BPE", vocab: {}, merges: [] },
      post_processor: null,
      decoder: null,
    },
    {},
  );
  return split.pattern;
}

function aboutTokenizerJson<Result>(create: () => Result): Result {
  try {
    return create();
  } catch (error) {
    if (error instanceof EngineError) throw error;
    throw new EngineError(
      "unsupported_model",
      `tokenizer.json of the checkpoint is of an unsupported kind (${describeError(error)}).`,
      { cause: error },
    );
  }
}
