/** Splits a text at the borders of its tokens. */

/** @typedef {{ readonly token: string, readonly logprob: number, readonly bytes: readonly number[] | null }} TokenLogprob */
/** @typedef {TokenLogprob & { readonly top_logprobs: readonly TokenLogprob[] }} TokenLogprobs */

/**
 * A piece of text and the tokens that spell it: one as a rule, several where a character is more than one token, none
 * where that is not known.
 *
 * @typedef {{ readonly text: string, readonly tokens: readonly TokenLogprobs[] }} TokenSpan
 */

/**
 * Tokens that have left nothing in the text (special ones) get no span; where the tokens do not spell the text, the
 * rest of it is one span without any.
 *
 * @param {string} text
 * @param {readonly TokenLogprobs[]} tokens  Those of this text, in order.
 * @returns {TokenSpan[]}
 */
export function cutIntoSpans(text, tokens) {
  /** @type {TokenSpan[]} */
  const spans = [];
  let offset = 0;
  for (const group of groupIntoCharacters(tokens)) {
    const { spelling } = group;
    // The first token of a text may have a leading space that the text lacks.
    const found = [spelling, spelling.trimStart()].find((piece) => piece !== "" && text.startsWith(piece, offset));
    if (found === undefined) continue;
    spans.push({ text: found, tokens: group.tokens });
    offset += found.length;
  }
  if (offset < text.length) spans.push({ text: text.slice(offset), tokens: [] });
  return spans;
}

/**
 * @param {readonly TokenLogprobs[]} tokens
 * @returns {{ spelling: string, tokens: TokenLogprobs[] }[]}
 */
function groupIntoCharacters(tokens) {
  const groups = [];
  /** @type {TokenLogprobs[]} */
  let open = [];
  for (const token of tokens) {
    open.push(token);
    const spelling = decode(open);
    if (spelling === null) continue;
    groups.push({ spelling, tokens: open });
    open = [];
  }
  return groups;
}

/**
 * Null where the bytes end within a character.
 *
 * @param {readonly TokenLogprobs[]} tokens
 */
function decode(tokens) {
  if (tokens.some(({ bytes }) => bytes === null)) return tokens.map(({ token }) => token).join("");
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(
      Uint8Array.from(tokens.flatMap(({ bytes }) => bytes ?? [])),
    );
  } catch {
    return null;
  }
}
