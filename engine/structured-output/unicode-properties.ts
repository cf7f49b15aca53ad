/** The characters of Unicode properties, as JavaScript's regular expressions know them: `\p{L}`. */
import { FIRST_SURROGATE, LAST_SURROGATE } from "./code-point-set.ts";
import type { CodePointRange, CodePointSet } from "./code-point-set.ts";

/** General categories, some binary properties, and scripts: finding the characters of one takes some milliseconds, once. */
const namePattern =
  /^(?:L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|Letter|Mark|Number|Punctuation|Symbol|Separator|Alphabetic|Uppercase|Lowercase|White_Space|Emoji|Emoji_Presentation|Emoji_Component|Extended_Pictographic|(?:Script|sc)=(?:Latin|Greek|Cyrillic|Han|Hiragana|Katakana|Hangul|Arabic|Hebrew|Thai|Devanagari))$/;

/** No character with such a property lies between these, nor behind the last one. */
const FIRST_FREE = 0x4_00_00;
const LAST_FREE = 0xd_ff_ff;
const LAST_MEMBER = 0xe_0f_ff;

const setsByName = new Map<string, CodePointSet>();

/** Null for a name that is not supported. */
export function charactersOf(name: string): CodePointSet | null {
  if (!namePattern.test(name)) return null;
  let set = setsByName.get(name);
  if (set === undefined) setsByName.set(name, (set = findCharacters(name)));
  return set;
}

function findCharacters(name: string): CodePointSet {
  const expression = new RegExp(String.raw`\p{${name}}`, "u");
  const ranges: CodePointRange[] = [];
  let start = -1;
  for (let code = 0; code <= LAST_MEMBER + 1; code++) {
    if (code === FIRST_FREE + 1) code = LAST_FREE + 1;
    const isSurrogate = code >= FIRST_SURROGATE && code <= LAST_SURROGATE;
    const isMember = code <= LAST_MEMBER && !isSurrogate && expression.test(String.fromCodePoint(code));
    if (isMember && start === -1) start = code;
    if (isMember || start === -1) continue;
    ranges.push([start, code - 1]);
    start = -1;
  }
  return ranges;
}
