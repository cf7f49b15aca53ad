/** Normalises long texts a part at a time, with the result of the whole. */
import type { TokenizerComponent } from "./tokenizer-json.ts";

/** The library's normalizer, as far as it is called here. */
interface Normalizer {
  normalize(text: string): string;
}

/** Characters normalised at once, in up to a millisecond. A shorter text is left to the library. */
const SLICE_LENGTH = 65_536;

/** Yields null where other work may be done, and returns the normalised text. */
export type NormalizeLongText = (text: string) => Generator<null, string>;

/**
 * Replaces in slices if the rules replace one character by another, possibly after a prefix. The library stores each
 * replacement, which takes 2 s and a gigabyte for 32 MiB of spaces. Other rules are applied to the whole text: Unicode's
 * forms take 10 ns per character.
 */
export function createLongTextNormalizer(normalizer: Normalizer, rule: TokenizerComponent): NormalizeLongText {
  const replacement = replacementOf(rule);
  return function* normalizeLongText(text) {
    if (replacement === null || text.length <= SLICE_LENGTH) return normalizer.normalize(text);
    const slices = [normalizer.normalize(text.slice(0, SLICE_LENGTH))];
    for (let start = SLICE_LENGTH; start < text.length; start += SLICE_LENGTH) {
      yield null;
      slices.push(replaceCharacter(text.slice(start, start + SLICE_LENGTH), replacement));
    }
    return slices.join("");
  };
}

/** UTF-16 code units. */
interface CharacterReplacement {
  readonly from: number;
  readonly to: number;
}

/** Null for rules that do anything else but put a prefix before the text. */
function replacementOf(rule: TokenizerComponent): CharacterReplacement | null {
  const rules = rule.type === "Sequence" ? ((rule.normalizers ?? []) as TokenizerComponent[]) : [rule];
  const [only, ...others] = rules.filter(({ type }) => type !== "Prepend");
  if (only?.type !== "Replace" || others.length > 0) return null;
  const { String: from } = (only.pattern ?? {}) as { readonly String?: string };
  const to = only.content;
  if (from?.length !== 1 || typeof to !== "string" || to.length !== 1) return null;
  return { from: from.charCodeAt(0), to: to.charCodeAt(0) };
}

function replaceCharacter(text: string, { from, to }: CharacterReplacement): string {
  // UTF-16 also keeps halves of surrogate pairs.
  const bytes = Buffer.from(text, "utf16le");
  const units = new Uint16Array(bytes.buffer, bytes.byteOffset, text.length);
  for (let index = 0; index < units.length; index++) if (units[index] === from) units[index] = to;
  return bytes.toString("utf16le");
}
