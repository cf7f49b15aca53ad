/** A list of choices as a grammar. */

/** The two characters that mean something inside an EBNF string, and those that a grammar cannot contain as they are. */
// oxlint-disable-next-line no-control-regex
const SPECIAL_CHARACTERS = /["\\\u0000-\u001F\u007F]/gu;

/** EBNF in XGrammar's spelling that matches exactly one of `choices`, which are well-formed and not empty. */
export function toEbnf(choices: readonly string[]): string {
  return `root ::= ${choices.map(quote).join(" | ")}`;
}

function quote(choice: string): string {
  const escaped = choice.replaceAll(SPECIAL_CHARACTERS, (character) =>
    character === '"' || character === "\\"
      ? `\\${character}`
      : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return `"${escaped}"`;
}
