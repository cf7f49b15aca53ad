/** Follows one JSON value character by character, without building it. */

/**
 * `more`: the character belongs to the value; `done`: it ends the value; `before`: the value, a number, ended before the
 * character; `broken`: no JSON value continues with it.
 */
export type Scanned = "more" | "done" | "before" | "broken";

type State =
  | "value"
  | "value or ]"
  | "name"
  | "name or }"
  | "colon"
  | "after value"
  | "string"
  | "escape"
  | "unicode"
  | "literal"
  | "minus"
  | "zero"
  | "integer"
  | "point"
  | "fraction"
  | "exponent"
  | "signed exponent"
  | "exponent digits";

const literals: Readonly<Record<string, string>> = { t: "rue", f: "alse", n: "ull" };
const isBlank = (char: string): boolean => char === " " || char === "\n" || char === "\t" || char === "\r";
const isDigit = (char: string): boolean => char >= "0" && char <= "9";

/** Mutable. The grammar is that of RFC 8259, but control characters are allowed in strings. */
export class JsonScanner {
  /** Containers around the current place: `{` or `[`. */
  readonly #open: string[] = [];
  #state: State = "value";
  #isName = false;
  /** Characters that a literal or a \u escape still needs. */
  #literal = "";
  #numHexDigits = 0;

  /** Whether the next character is inside a string. */
  get isInString(): boolean {
    return this.#state === "string";
  }

  next(char: string): Scanned {
    switch (this.#state) {
      case "string":
        if (char === '"') return this.#endString();
        if (char === "\\") this.#state = "escape";
        return "more";
      case "escape":
        if (char === "u") {
          this.#numHexDigits = 4;
          this.#state = "unicode";
          return "more";
        }
        return this.#go('"\\/bfnrt'.includes(char), "string");
      case "unicode":
        if (!/^[\da-fA-F]$/.test(char)) return "broken";
        if (--this.#numHexDigits === 0) this.#state = "string";
        return "more";
      case "literal":
        if (char !== this.#literal.charAt(0)) return "broken";
        this.#literal = this.#literal.slice(1);
        return this.#literal === "" ? this.#endValue() : "more";
      case "value":
      case "value or ]":
        return this.#startValue(char);
      case "name":
      case "name or }":
        if (isBlank(char)) return "more";
        if (char === "}" && this.#state === "name or }") return this.#close("{");
        this.#isName = true;
        return this.#go(char === '"', "string");
      case "colon":
        return isBlank(char) ? "more" : this.#go(char === ":", "value");
      case "after value":
        if (isBlank(char)) return "more";
        if (char === "}" || char === "]") return this.#close(char === "}" ? "{" : "[");
        return this.#go(char === ",", this.#open.at(-1) === "{" ? "name" : "value");
      case "minus":
        if (char === "0") this.#state = "zero";
        else this.#state = "integer";
        return isDigit(char) ? "more" : "broken";
      case "point":
        return this.#go(isDigit(char), "fraction");
      case "exponent":
        if (char === "+" || char === "-") return this.#go(true, "signed exponent");
        return this.#go(isDigit(char), "exponent digits");
      case "signed exponent":
        return this.#go(isDigit(char), "exponent digits");
      case "zero":
      case "integer":
      case "fraction":
      case "exponent digits":
        return this.#continueNumber(char, this.#state);
    }
  }

  #go(isAllowed: boolean, state: State): Scanned {
    this.#state = state;
    return isAllowed ? "more" : "broken";
  }

  #startValue(char: string): Scanned {
    if (isBlank(char)) return "more";
    if (char === "]" && this.#state === "value or ]") return this.#close("[");
    if (char === "{" || char === "[") {
      this.#open.push(char);
      return this.#go(true, char === "{" ? "name or }" : "value or ]");
    }
    if (char === '"') {
      this.#isName = false;
      return this.#go(true, "string");
    }
    if (char === "-") return this.#go(true, "minus");
    if (char === "0") return this.#go(true, "zero");
    if (isDigit(char)) return this.#go(true, "integer");
    const rest = literals[char];
    if (rest === undefined) return "broken";
    this.#literal = rest;
    return this.#go(true, "literal");
  }

  #continueNumber(char: string, state: "zero" | "integer" | "fraction" | "exponent digits"): Scanned {
    if (isDigit(char) && state !== "zero") return "more";
    if (char === "." && (state === "zero" || state === "integer")) return this.#go(true, "point");
    if ((char === "e" || char === "E") && state !== "exponent digits") return this.#go(true, "exponent");
    if (this.#open.length === 0) return "before";
    this.#state = "after value";
    return this.next(char);
  }

  #endString(): Scanned {
    if (!this.#isName) return this.#endValue();
    this.#isName = false;
    return this.#go(true, "colon");
  }

  #close(container: string): Scanned {
    return this.#open.pop() === container ? this.#endValue() : "broken";
  }

  #endValue(): Scanned {
    this.#state = "after value";
    return this.#open.length === 0 ? "done" : "more";
  }
}
