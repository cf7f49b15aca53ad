/**
 * Cuts JSON into the texts of its parts without building them, so that one hostile part of an answer costs no more than
 * its own refusal. The parts themselves are not checked.
 */

const space = /\s*/y;
/** Everything up to the next character that matters between values. */
const literal = /[^\s,:\]}"[{]+/y;
const betweenBrackets = /[^"[\]{}]*/y;

/** The texts of the elements of a list; null for text that is no list. */
export function sliceElements(text: string): readonly string[] | null {
  const elements: string[] = [];
  const end = eachPart(text, "[", "]", (position) => {
    const after = endOfValue(text, position);
    if (after !== null) elements.push(text.slice(position, after));
    return after;
  });
  return end === null ? null : elements;
}

/** The texts of the members of an object by their names; null for text that is no object. */
export function sliceMembers(text: string): ReadonlyMap<string, string> | null {
  const members = new Map<string, string>();
  const end = eachPart(text, "{", "}", (position) => {
    const afterName = endOfString(text, position);
    if (afterName === null) return null;
    const colon = endOf(space, text, afterName)!;
    if (text[colon] !== ":") return null;
    const start = endOf(space, text, colon + 1)!;
    const after = endOfValue(text, start);
    const name = parseText(text.slice(position, afterName));
    if (after === null || name === null) return null;
    members.set(name, text.slice(start, after));
    return after;
  });
  return end === null ? null : members;
}

/** The value of the text of a JSON string; null for any other text. */
export function parseText(text: string | undefined): string | null {
  if (text === undefined || !text.startsWith('"')) return null;
  try {
    return JSON.parse(text) as string;
  } catch {
    return null;
  }
}

/** `readPart` returns the position after the part, or null. Returns the position after the list or object, or null. */
function eachPart(
  text: string,
  open: string,
  close: string,
  readPart: (position: number) => number | null,
): number | null {
  let position = endOf(space, text, 0)!;
  if (text[position] !== open) return null;
  position = endOf(space, text, position + 1)!;
  if (text[position] === close) return position + 1;
  for (;;) {
    const after = readPart(position);
    if (after === null) return null;
    position = endOf(space, text, after)!;
    if (text[position] === close) return position + 1;
    if (text[position] !== ",") return null;
    position = endOf(space, text, position + 1)!;
  }
}

function endOfValue(text: string, start: number): number | null {
  const first = text[start];
  if (first === '"') return endOfString(text, start);
  if (first !== "{" && first !== "[") return endOf(literal, text, start);
  let depth = 0;
  for (let position: number | null = start; position !== null && position < text.length;) {
    const character = text[position];
    if (character === '"') {
      position = endOfString(text, position);
      continue;
    }
    if (character === "{" || character === "[") depth++;
    else if (character === "}" || character === "]") depth--;
    position++;
    if (depth === 0) return position;
    position = endOf(betweenBrackets, text, position);
  }
  return null;
}

/** `start` is the position of the opening quote. Not a regular expression: a long string would exhaust its stack. */
function endOfString(text: string, start: number): number | null {
  if (text[start] !== '"') return null;
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let numBackslashes = 0;
    while (text[quote - 1 - numBackslashes] === "\\") numBackslashes++;
    if (numBackslashes % 2 === 0) return quote + 1;
  }
  return null;
}

function endOf(pattern: RegExp, text: string, position: number): number | null {
  pattern.lastIndex = position;
  return pattern.test(text) ? pattern.lastIndex : null;
}
