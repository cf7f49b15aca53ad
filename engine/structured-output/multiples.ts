/** The numbers of a range that are multiples of another one (`multipleOf`), as expressions. */
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";

/** Numbers with at most this many digits remain distinct and ordered as double-precision numbers. */
const MAX_DIGITS = 15;

/** Zeros that may follow the last decimal that counts: `2.50` is a multiple of 0.5. */
const MAX_TRAILING_ZEROS = 2;

/** `digits` / 10 ** `numDecimals` */
interface Decimal {
  readonly digits: bigint;
  readonly numDecimals: number;
}

export interface MultipleBounds {
  /** Null means no bound, as for `max`. */
  readonly min: number | null;
  readonly max: number | null;
  readonly excludesMin: boolean;
  readonly excludesMax: boolean;
}

export interface MultiplesOptions {
  readonly type: "integer" | "number";
  /** Finite, above zero. */
  readonly step: number;
  readonly bounds: MultipleBounds;
  /** The maximum number of digits in all places of the expression: its size. */
  readonly maxSize: number;
}

export type Multiples =
  | { readonly kind: "none" }
  | { readonly kind: "too-large" }
  | { readonly kind: "some"; readonly expression: Expression; readonly size: number };

/**
 * Exactly the multiples of `step` within the bounds that have at most 15 digits, without an exponent. The texts of the
 * same number with up to two zeros more are included for the type `number`.
 */
export function multiplesOf({ type, step, bounds, maxSize }: MultiplesOptions): Multiples {
  const unit = unitOf(decimalOf(step), type);
  const limit = 10n ** BigInt(MAX_DIGITS) - 1n;
  const { min, max, excludesMin, excludesMax } = bounds;
  const least = min === null ? -limit : largerOf(ceil(decimalOf(min), unit.numDecimals, excludesMin), -limit);
  const most = max === null ? limit : smallerOf(floor(decimalOf(max), unit.numDecimals, excludesMax), limit);
  const writer = new MultiplesWriter(Number(smallerOf(unit.digits, limit + 1n)), unit.numDecimals, type, maxSize);
  const options = writer.between(Number(largerOf(least, 0n)), Number(most));
  const below = writer.between(Number(largerOf(-most, 1n)), Number(-least));
  if (below.length > 0) options.push(sequenceOf([literalOf("-"), alternativesOf(below)]));
  if (writer.size > maxSize) return { kind: "too-large" };
  return options.length === 0
    ? { kind: "none" }
    : { kind: "some", expression: alternativesOf(options), size: writer.size };
}

/** Exact, as decimals. */
export function isMultiple(value: number, step: number): boolean {
  const [dividend, divisor] = [decimalOf(value), decimalOf(step)];
  return (
    (dividend.digits * 10n ** BigInt(divisor.numDecimals)) % (divisor.digits * 10n ** BigInt(dividend.numDecimals)) ===
    0n
  );
}

/** The least number that both divide; null if it has more than 15 digits. */
export function leastCommonMultiple(left: number, right: number): number | null {
  const [first, second] = [decimalOf(left), decimalOf(right)];
  const numDecimals = Math.max(first.numDecimals, second.numDecimals);
  const [firstDigits, secondDigits] = [first, second].map(
    (decimal) => decimal.digits * 10n ** BigInt(numDecimals - decimal.numDecimals),
  ) as [bigint, bigint];
  const multiple = (firstDigits * secondDigits) / greatestCommonDivisor(firstDigits, secondDigits);
  return String(multiple).length > MAX_DIGITS ? null : Number(`${multiple}e-${numDecimals}`);
}

/** Whole multiples of a step with decimals are multiples of a larger, whole step. */
function unitOf(step: Decimal, type: "integer" | "number"): Decimal {
  if (type === "number") return step;
  return { digits: step.digits / greatestCommonDivisor(step.digits, 10n ** BigInt(step.numDecimals)), numDecimals: 0 };
}

/** The exact value of the shortest text that is read as this number. */
function decimalOf(value: number): Decimal {
  const [mantissa, exponent = "0"] = String(value).split("e") as [string, string?];
  const [whole, fraction = ""] = mantissa.split(".") as [string, string?];
  const digits = BigInt(whole + fraction);
  const numDecimals = fraction.length - Number(exponent);
  return numDecimals >= 0 ? { digits, numDecimals } : { digits: digits * 10n ** BigInt(-numDecimals), numDecimals: 0 };
}

/** In units of 10 ** -`numDecimals`, the least number from `bound` on, or above it. */
function ceil(bound: Decimal, numDecimals: number, isExcluded: boolean): bigint {
  return -floor({ ...bound, digits: -bound.digits }, numDecimals, isExcluded);
}

function floor({ digits, numDecimals }: Decimal, wanted: number, isExcluded: boolean): bigint {
  const scaled = digits * 10n ** BigInt(wanted);
  const unit = 10n ** BigInt(numDecimals);
  const rest = ((scaled % unit) + unit) % unit;
  const whole = (scaled - rest) / unit;
  return isExcluded && rest === 0n ? whole - 1n : whole;
}

function largerOf(left: bigint, right: bigint): bigint {
  return left > right ? left : right;
}

function smallerOf(left: bigint, right: bigint): bigint {
  return left < right ? left : right;
}

function greatestCommonDivisor(left: bigint, right: bigint): bigint {
  return right === 0n ? left : greatestCommonDivisor(right, left % right);
}

/** What may follow the first digits of a number. All numbers here are whole, in units of the last decimal. */
interface Rest {
  readonly numDigits: number;
  /** What the first digits leave when divided by the step, with zeros in place of the rest. */
  readonly remainder: number;
  /** Bounds of the rest. */
  readonly min: number;
  readonly max: number;
}

/**
 * Writes numbers digit by digit. Rests with the same remainder and bounds are one expression, so there are at most as
 * many for each number of digits as there are remainders. Mutable: counts its work.
 */
class MultiplesWriter {
  readonly #step: number;
  readonly #numDecimals: number;
  readonly #type: "integer" | "number";
  readonly #maxSize: number;
  readonly #written = new Map<string, Expression>();
  size = 0;

  constructor(step: number, numDecimals: number, type: "integer" | "number", maxSize: number) {
    this.#step = step;
    this.#numDecimals = numDecimals;
    this.#type = type;
    this.#maxSize = maxSize;
  }

  /** One option for each number of digits. `min` is at least 0. */
  between(min: number, max: number): Expression[] {
    const options: Expression[] = [];
    const fewest = this.#numDecimals + 1;
    for (let numDigits = fewest; numDigits <= MAX_DIGITS; numDigits++) {
      const least = Math.max(min, numDigits === fewest ? 0 : 10 ** (numDigits - 1));
      const most = Math.min(max, 10 ** numDigits - 1);
      const rest = { numDigits, remainder: 0, min: least, max: most };
      if (this.#hasMultiple(rest)) options.push(this.#write(rest));
    }
    return options;
  }

  #hasMultiple({ remainder, min, max }: Rest): boolean {
    const first = (remainder + min) % this.#step;
    return min + (first === 0 ? 0 : this.#step - first) <= max;
  }

  #write(rest: Rest): Expression {
    const key = Object.values(rest).join(" ");
    let expression = this.#written.get(key);
    if (expression === undefined) this.#written.set(key, (expression = this.#digitsOf(rest)));
    return expression;
  }

  #digitsOf(rest: Rest): Expression {
    const { numDigits, remainder, min, max } = rest;
    if (numDigits === 0) return this.#trailingZeros();
    if (this.size > this.#maxSize) return literalOf("");
    const unit = 10 ** (numDigits - 1);
    const digitsByRest = new Map<Expression, string[]>();
    for (let digit = Math.floor(min / unit); digit <= Math.floor(max / unit); digit++) {
      const next: Rest = {
        numDigits: numDigits - 1,
        remainder: (remainder + digit * unit) % this.#step,
        min: Math.max(0, min - digit * unit),
        max: Math.min(unit - 1, max - digit * unit),
      };
      if (!this.#hasMultiple(next)) continue;
      this.size++;
      const following = this.#write(next);
      const digits = digitsByRest.get(following);
      if (digits === undefined) digitsByRest.set(following, [String(digit)]);
      else digits.push(String(digit));
    }
    const options = Array.from(digitsByRest, ([following, digits]) =>
      sequenceOf([{ kind: "words", words: digits }, following]),
    );
    const digits = alternativesOf(options);
    if (numDigits > this.#numDecimals || this.#numDecimals === 0) return digits;
    // The number may end here if only zeros follow.
    const canEnd = remainder === 0 && min === 0;
    const isAtPoint = numDigits === this.#numDecimals;
    const decimals = isAtPoint ? sequenceOf([literalOf("."), digits]) : digits;
    return canEnd ? { kind: "repetition", part: decimals, min: 0, max: 1 } : decimals;
  }

  #trailingZeros(): Expression {
    if (this.#type === "integer") return literalOf("");
    const zeros = Array.from({ length: MAX_TRAILING_ZEROS }, (_, index) => "0".repeat(index + 1));
    return { kind: "words", words: ["", ...zeros.map((text) => (this.#numDecimals === 0 ? `.${text}` : text))] };
  }
}
