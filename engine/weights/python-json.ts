/** Parses the JSON files of a checkpoint, which Python writes. */

/** A text, or a number that Python writes and JSON lacks. */
const textOrNumber = /"[^"\\]*(?:\\.[^"\\]*)*"|(?<![\w.])(?:NaN|-?Infinity)(?![\w.])/gs;

/** Numbers that JSON has, in forms that no program writes: the first two are the infinities, the third is zero. */
const stand: Readonly<Record<string, string>> = { Infinity: "9e9999", "-Infinity": "-9e9999", NaN: "-0e9999" };

/**
 * Like JSON.parse, and reads NaN, Infinity and -Infinity, which Python's `json` writes for such floats.
 *
 * @throws SyntaxError of JSON.parse, with its positions, if the text is not JSON otherwise.
 */
export function parsePythonJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    const standIn = text.replaceAll(textOrNumber, (found) => stand[found] ?? found);
    if (standIn === text) throw error;
    return parseStandIn(standIn, error);
  }
}

function parseStandIn(text: string, original: unknown): unknown {
  try {
    return JSON.parse(text, (_key: string, value: unknown, context?: { readonly source?: string }) =>
      context?.source === stand.NaN ? NaN : value,
    );
  } catch {
    throw original;
  }
}
