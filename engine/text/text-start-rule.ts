/** The rule of a tokenizer.json decoder for the very start of a text, which `createTokenBytes` leaves out. */
import type { TokenizerComponent } from "./tokenizer-json.ts";

/** Receives the text with its first token in the vocabulary's spelling; returns the text that Hugging Face decodes. */
export type TextStartRule = (text: string, firstToken: string) => string;

/** `Strip` after `Fuse` removes spaces at the start; Metaspace drops those of the first token. */
export function createTextStartRule(decoder: TokenizerComponent | null): TextStartRule {
  const rules = decoder === null ? [] : partsOf(decoder).map(toRule);
  return (text, firstToken) => rules.reduce((result, rule) => rule(result, firstToken), text);
}

function partsOf(decoder: TokenizerComponent): TokenizerComponent[] {
  return decoder.type === "Sequence" ? ((decoder.decoders ?? []) as TokenizerComponent[]).flatMap(partsOf) : [decoder];
}

function toRule(decoder: TokenizerComponent): TextStartRule {
  switch (decoder.type) {
    case "Strip":
      return stripRule(decoder);
    case "Metaspace":
      return metaspaceRule(decoder);
    default:
      return (text) => text;
  }
}

function stripRule({ content, start }: TokenizerComponent): TextStartRule {
  if (typeof content !== "string" || content === "" || typeof start !== "number") return (text) => text;
  return (text) => {
    let end = 0;
    for (let count = 0; count < start && text.startsWith(content, end); count += 1) end += content.length;
    return text.slice(end);
  };
}

/** Older files have `add_prefix_space` instead of `prepend_scheme`. */
function metaspaceRule(decoder: TokenizerComponent): TextStartRule {
  const { replacement = "▁", prepend_scheme: scheme, add_prefix_space: addsSpace = true } = decoder;
  if (typeof replacement !== "string" || (scheme ?? (addsSpace === true ? "always" : "never")) === "never") {
    return (text) => text;
  }
  return (text, firstToken) => {
    const first = firstToken.replaceAll(replacement, "");
    return first + text.slice(firstToken.length);
  };
}
