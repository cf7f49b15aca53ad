/** Turns the texts of the settings into the fields of a request, or into error messages. */

/** @typedef {"text" | "json" | "regex" | "choice"} AnswerForm */

/**
 * As typed; numbers and JSON are empty where they are left to the server.
 *
 * @typedef {object} SettingsTexts
 * @property {string} temperature
 * @property {string} top_p
 * @property {string} max_tokens
 * @property {string} seed
 * @property {AnswerForm} form
 * @property {string} structured_outputs
 * @property {string} vllm_xargs
 * @property {boolean} logprobs
 */

/** The fields that can be invalid. */
export const checkedFields = /** @type {const} */ ([
  "temperature",
  "top_p",
  "max_tokens",
  "seed",
  "structured_outputs",
  "vllm_xargs",
  "logprobs",
]);

/** @typedef {typeof checkedFields[number]} CheckedField */
/** @typedef {Partial<Record<CheckedField, string>>} Problems */

/** As many as a token's card shows. */
const NUM_ALTERNATIVES = 5;

/**
 * Types are checked here; ranges are the server's to know, whose errors name the field.
 *
 * @param {SettingsTexts} texts
 * @param {number} maxLogprobs  Most alternatives that the server gives for a token.
 * @returns {{ fields: Readonly<Record<string, unknown>>, problems: Problems }}
 */
export function parseSettings(texts, maxLogprobs) {
  /** @type {Problems} */
  const problems = {};
  /** @type {Record<string, unknown>} */
  const fields = {};
  /**
   * @param {CheckedField} name
   * @param {() => unknown} parse
   */
  const add = (name, parse) => {
    try {
      const value = parse();
      if (value !== undefined) fields[name] = value;
    } catch (error) {
      if (!(error instanceof FieldError)) throw error;
      problems[name] = error.message;
    }
  };

  add("temperature", () => parseNumber(texts.temperature));
  add("top_p", () => parseNumber(texts.top_p));
  add("max_tokens", () => parseWholeNumber(texts.max_tokens));
  add("seed", () => parseWholeNumber(texts.seed));
  add("structured_outputs", () => parseForm(texts.form, texts.structured_outputs));
  add("vllm_xargs", () => (texts.vllm_xargs.trim() === "" ? undefined : parseJsonObject(texts.vllm_xargs)));
  if (texts.logprobs) Object.assign(fields, { logprobs: true, top_logprobs: Math.min(NUM_ALTERNATIVES, maxLogprobs) });
  return { fields, problems };
}

class FieldError extends Error {}

/** @param {string} text */
function parseNumber(text) {
  const trimmed = text.trim();
  if (trimmed === "") return undefined;
  const value = Number(trimmed);
  if (!Number.isFinite(value)) throw new FieldError("Enter a number.");
  return value;
}

/** @param {string} text */
function parseWholeNumber(text) {
  const value = parseNumber(text);
  if (value !== undefined && !Number.isSafeInteger(value)) throw new FieldError("Enter a whole number.");
  return value;
}

/**
 * vLLM's `structured_outputs`.
 *
 * @param {AnswerForm} form
 * @param {string} text
 */
function parseForm(form, text) {
  switch (form) {
    case "text":
      return undefined;
    case "json":
      return { json: parseJsonObject(text) };
    case "regex":
      if (text.trim() === "") throw new FieldError("Enter a regular expression.");
      return { regex: text.trim() };
    case "choice": {
      const choice = text
        .split("\n")
        .map((line) => line.trim())
        .filter((line) => line !== "");
      if (choice.length === 0) throw new FieldError("Enter the choices, one per line.");
      return { choice };
    }
  }
}

/** @param {string} text */
function parseJsonObject(text) {
  if (text.trim() === "") throw new FieldError('Enter a JSON object: {"name": value}.');
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new FieldError(`${/** @type {SyntaxError} */ (error).message}.`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new FieldError('Enter a JSON object: {"name": value}.');
  }
  return value;
}
