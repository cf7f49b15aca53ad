/**
 * Rewrites a tokenizer.json's normalizer into rules for which @huggingface/tokenizers agrees with Hugging Face's own
 * library. Its `Strip` uses JavaScript's white space, which differs from Unicode's (U+FEFF, U+0085); its `Replace` reads
 * `$` in the replacement; its `Lowercase` looks at the letters around a sigma, and its `Prepend` begins an empty text.
 */
import type { TokenizerComponent } from "./tokenizer-json.ts";

export function faithfulNormalizer(rule: TokenizerComponent): TokenizerComponent {
  switch (rule.type) {
    case "Sequence": {
      const rules = (rule.normalizers ?? []) as TokenizerComponent[];
      return { ...rule, normalizers: rules.map(faithfulNormalizer) };
    }
    case "Replace":
      return { ...rule, content: asReplacement(rule.content) };
    case "Prepend":
      return replace({ Regex: String.raw`\A(?=[\s\S])` }, rule.prepend);
    case "Lowercase":
      return sequence([replace({ String: "Σ" }, "σ"), rule]);
    case "Strip":
      return sequence([
        ...(rule.strip_left === true ? [replace({ Regex: String.raw`\A\s+` }, "")] : []),
        // From the first space of a run on, so that a long run inside the text is read once.
        ...(rule.strip_right === true ? [replace({ Regex: String.raw`(?<!\s)\s+\z` }, "")] : []),
      ]);
    default:
      return rule;
  }
}

function sequence(normalizers: TokenizerComponent[]): TokenizerComponent {
  return { type: "Sequence", normalizers };
}

function replace(pattern: object, content: unknown): TokenizerComponent {
  return { type: "Replace", pattern, content: asReplacement(content) };
}

/** The text as `String.prototype.replaceAll` takes it. */
function asReplacement(content: unknown): unknown {
  return typeof content === "string" ? content.replaceAll("$", "$$$$") : content;
}
