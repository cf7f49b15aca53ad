/**
 * Rewrites a tokenizer.json's pre-tokenizer into rules for which @huggingface/tokenizers agrees with Hugging Face's own
 * library. Its `ByteLevel` and `Digits` use JavaScript's `\s` and `\d`, which differ from Unicode's white space
 * (U+FEFF, U+0085) and numbers ("½"); its `Split` translates patterns exactly.
 */
import type { TokenizerComponent } from "./tokenizer-json.ts";

/** The pattern of Hugging Face's ByteLevel pre-tokenizer, which is GPT-2's. */
const BYTE_LEVEL_PATTERN = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

export function faithfulPreTokenizer(rule: TokenizerComponent): TokenizerComponent {
  if (rule.type === "Sequence") {
    const rules = (rule.pretokenizers ?? []) as TokenizerComponent[];
    return { ...rule, pretokenizers: rules.map(faithfulPreTokenizer) };
  }
  if (rule.type === "Digits") {
    return split(rule.individual_digits === true ? String.raw`\p{N}` : String.raw`\p{N}+`);
  }
  // With add_prefix_space, the space must be added before the split. The library does that only inside ByteLevel.
  if (rule.type === "ByteLevel" && rule.use_regex !== false && rule.add_prefix_space !== true) {
    return { type: "Sequence", pretokenizers: [split(BYTE_LEVEL_PATTERN), { ...rule, use_regex: false }] };
  }
  return rule;
}

function split(regex: string): TokenizerComponent {
  return { type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false };
}
