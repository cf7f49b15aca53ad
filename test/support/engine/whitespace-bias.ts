/**
 * A `logit_bias` against white space in the shipped checkpoint's vocabulary. Grammars of JSON allow any white space, and a
 * model that does not know JSON would sometimes write it until its tokens are used up.
 */
import { readFile } from "node:fs/promises";

interface TokenizerFile {
  readonly model: { readonly vocab: Readonly<Record<string, number>> };
}

const file = new URL("../../../models/fovea-shapes/tokenizer.json", import.meta.url);
const { model } = JSON.parse(await readFile(file, "utf8")) as TokenizerFile;

/** In the byte-level spelling: space, line feed, tab and carriage return. */
export const biasAgainstWhiteSpace: Record<string, number> = Object.fromEntries(
  Object.entries(model.vocab).flatMap(([token, id]) => (/[ĠĊĉč]/.test(token) ? [[String(id), -100]] : [])),
);
