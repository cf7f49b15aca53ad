/**
 * Parses JSON with a bounded structure. One pass over the text checks the limits before anything is built, because a
 * few megabytes of `{},{},…` take seconds and hundreds of megabytes to parse. This also runs on a thread, so it imports
 * nothing.
 */

/** Requests have 6 levels, the schemas within them a few dozen. Code that walks a body may recurse up to this depth. */
export const MAX_JSON_DEPTH = 100;
/** Elements of all lists plus members of all objects. The longest prompts of token ids have this many. */
export const MAX_JSON_VALUES = 1_048_576;
/** Lists and objects. Each takes 0.5 µs to build; 4096 messages with a picture each have 20,480. */
export const MAX_JSON_CONTAINERS = 32_768;
/** Names of members. Each new name is interned, which takes 1 µs. */
export const MAX_JSON_KEYS = 32_768;

export type ParsedJson =
  | { readonly kind: "parsed"; readonly value: unknown }
  | {
      readonly kind: "refused";
      readonly code: "invalid_json" | "json_too_complex";
      /** The rest of a sentence: "is not valid JSON at character 5". */
      readonly problem: string;
      /** Name of the body's member in which a limit was exceeded; null for a name that is not plain. */
      readonly member: string | null;
    };

/** Does the same for UTF-8, and drops a byte order mark. */
export function parseJsonBytes(bytes: Uint8Array): ParsedJson {
  return parseBytes(bytes, parseBoundedJson);
}

/** Known to all threads. A client that writes such an object itself has a number in its place. */
export const bodyMark = "\0number";

/** Like `parseJsonBytes`, for a body. Numbers in the inputs of calls in Anthropic's messages have marks. */
export function parseBodyBytes(bytes: Uint8Array): ParsedJson {
  return parseBytes(bytes, (text) => {
    const inputs: number[] = [];
    const parsed = parse(text, inputs);
    const marked = parsed.kind === "parsed" && inputs.length > 0 ? markNumbers(text, inputs, bodyMark) : null;
    return marked === null ? parsed : { kind: "parsed", value: JSON.parse(marked) as unknown };
  });
}

function parseBytes(bytes: Uint8Array, parseText: (text: string) => ParsedJson): ParsedJson {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return { kind: "refused", code: "invalid_json", problem: "is not UTF-8", member: null };
  }
  return parseText(text);
}

/** Never throws. */
export function parseBoundedJson(text: string): ParsedJson {
  return parse(text, null);
}

/** Adds to `inputs` where the inputs of calls begin. */
function parse(text: string, inputs: number[] | null): ParsedJson {
  const excess = findExcess(text, inputs);
  if (excess !== null) return { kind: "refused", code: "json_too_complex", ...excess };
  try {
    return { kind: "parsed", value: JSON.parse(text) as unknown };
  } catch (error) {
    // V8's message quotes the text around the error, which may be an image or a secret. Its position is enough.
    const position = /position (\d+)/.exec(error instanceof Error ? error.message : "")?.[1];
    const where = position === undefined ? "" : ` at character ${position}`;
    return { kind: "refused", code: "invalid_json", problem: `is not valid JSON${where}`, member: null };
  }
}

interface Excess {
  readonly problem: string;
  readonly member: string | null;
}

const SPACE = 0x20;
const QUOTE = 0x22;
const COMMA = 0x2c;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const COLON = 0x3a;
const OPENING_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const CLOSING_BRACKET = 0x5d;
const OPENING_BRACE = 0x7b;
const CLOSING_BRACE = 0x7d;

/** Of the member `input` in `{"messages": [{"content": [{"type": "tool_use", "input": …}]}]}`. */
const INPUT_DEPTH = 5;

/** Returns the first limit that the text exceeds. Other errors are left to the parser. */
function findExcess(text: string, inputs: number[] | null): Excess | null {
  let depth = 0;
  let numValues = 0;
  let numContainers = 0;
  let numKeys = 0;
  let stringStart = 0;
  let stringEnd = 0;
  let member: string | null = null;
  const excess = (problem: string): Excess => ({ problem, member });

  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    // White space and digits can also fill megabytes. These comparisons are cheaper than the switch.
    if (code <= SPACE || (code >= DIGIT_0 && code <= DIGIT_9)) continue;
    switch (code) {
      case QUOTE:
        stringStart = index + 1;
        stringEnd = endOfString(text, stringStart);
        index = stringEnd;
        break;
      case OPENING_BRACKET:
      case OPENING_BRACE:
        if (++depth > MAX_JSON_DEPTH) {
          return excess(`has more than ${MAX_JSON_DEPTH} levels of lists and objects, which is the limit`);
        }
        if (++numContainers > MAX_JSON_CONTAINERS) {
          return excess(`has more than ${MAX_JSON_CONTAINERS} lists and objects, which is the limit`);
        }
        break;
      case CLOSING_BRACKET:
      case CLOSING_BRACE:
        depth--;
        break;
      case COLON:
        if (depth === 1) member = plainName(text.slice(stringStart, stringEnd));
        if (depth === INPUT_DEPTH && inputs !== null && member === "messages") {
          if (text.slice(stringStart, stringEnd) === "input") inputs.push(index + 1);
        }
        if (++numKeys > MAX_JSON_KEYS) {
          return excess(`has more than ${MAX_JSON_KEYS} names in its objects, which is the limit`);
        }
        break;
      case COMMA:
        if (++numValues > MAX_JSON_VALUES) {
          return excess(`has more than ${MAX_JSON_VALUES} values, which is the limit`);
        }
        break;
    }
  }
  return null;
}

/** Index of the closing quote of the string whose text starts at `start`; the text's length if there is none. */
function endOfString(text: string, start: number): number {
  // A picture in base64 contains no quote, so the search for one runs at memory speed.
  const first = text.indexOf('"', start);
  if (first === -1) return text.length;
  if (text.charCodeAt(first - 1) !== BACKSLASH) return first;
  for (let index = start; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code === QUOTE) return index;
    if (code === BACKSLASH) index++;
  }
  return text.length;
}

/** Returns null for a name that a message should not quote. */
function plainName(name: string): string | null {
  return /^\w{1,64}$/.test(name) ? name : null;
}

/** More marked numbers are plain ones: each takes as long to parse as dozens of characters. */
const MAX_MARKS = 4096;

/**
 * The valid JSON text with an object in the place of each number that JavaScript would change, an integer beyond 2^53 or
 * an integral float, in the values that begin at `starts`. Its only member, `mark`, is a number for a float and a text
 * for an integer. Null without any such number, or with too many. `starts` ascend, and none is within another's value.
 */
export function markNumbers(text: string, starts: readonly number[], mark: string): string | null {
  const pieces: string[] = [];
  let end = 0;
  for (const start of starts) {
    for (const { at, number } of numbersOf(text, start)) {
      const marked = markOf(number);
      if (marked === null) continue;
      if (pieces.length === MAX_MARKS) return null;
      pieces.push(`${text.slice(end, at)}{${JSON.stringify(mark)}:${marked}}`);
      end = at + number.length;
    }
  }
  return pieces.length === 0 ? null : pieces.join("") + text.slice(end);
}

/** Of the value that begins at `start`, or after white space there. */
function* numbersOf(text: string, start: number): Generator<{ readonly at: number; readonly number: string }> {
  let depth = 0;
  for (let index = start; index < text.length; index++) {
    const character = text[index]!;
    if (character === '"') {
      index = endOfString(text, index + 1);
    } else if (character === "{" || character === "[") {
      depth++;
    } else if (character === "}" || character === "]") {
      depth--;
      if (depth <= 0) return;
    } else if (character === "," && depth === 0) {
      return;
    } else if (isOfNumber(character)) {
      const at = index;
      while (isOfNumber(text[index + 1])) index++;
      yield { at, number: text.slice(at, index + 1) };
    }
  }
}

/** A float stays a number within its mark, an integer becomes a text; null for a number that needs none. */
function markOf(number: string): string | null {
  const value = Number(number);
  if (!Number.isInteger(value)) return null;
  if (/[.eE]/.test(number)) return number;
  return Number.isSafeInteger(value) ? null : `"${number}"`;
}

/** Also of a word: `e`. It is no number, so it needs no mark. */
function isOfNumber(character: string | undefined): boolean {
  if (character === undefined) return false;
  return (character >= "0" && character <= "9") || "eE.+-".includes(character);
}
