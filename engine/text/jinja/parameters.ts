/** Reads the arguments of a filter, method or function. */
import { asText, JinjaError, typeName } from "./values.ts";
import type { Value } from "./values.ts";

export type Keywords = ReadonlyMap<string, Value>;

/** Arguments by the names of the parameters. */
export class Given {
  readonly #values: ReadonlyMap<string, Value>;

  /** @throws JinjaError for an argument that is unknown or given twice. */
  constructor(name: string, parameters: readonly string[], args: readonly Value[], keywords: Keywords) {
    if (args.length > parameters.length) {
      throw new JinjaError(`${name} takes at most ${parameters.length} arguments, but ${args.length} were given`);
    }
    const values = new Map<string, Value>();
    for (const [index, value] of args.entries()) values.set(parameters[index]!, value);
    for (const [keyword, value] of keywords) {
      if (!parameters.includes(keyword))
        throw new JinjaError(`${name} got an unexpected keyword argument '${keyword}'`);
      if (values.has(keyword)) throw new JinjaError(`${name} got multiple values for argument '${keyword}'`);
      values.set(keyword, value);
    }
    this.#values = values;
  }

  get(parameter: string): Value | undefined {
    return this.#values.get(parameter);
  }

  required(parameter: string): Value {
    const value = this.get(parameter);
    if (value === undefined) throw new JinjaError(`the argument '${parameter}' is missing`);
    return value;
  }

  integer(parameter: string, byDefault: number): number {
    const value = this.get(parameter) ?? byDefault;
    if (typeof value === "number" || typeof value === "boolean") return Number(value);
    throw new JinjaError(`'${typeName(value)}' object cannot be interpreted as an integer`);
  }

  /** A text of any value, or the default. */
  text(parameter: string, byDefault: string): string {
    const value = this.get(parameter);
    return value === undefined ? byDefault : asText(value);
  }
}

/** The text that a method of Python's `str` requires. */
export function requireText(value: Value | undefined): string {
  if (typeof value === "string") return value;
  throw new JinjaError(`must be str, not ${value === undefined ? "missing" : typeName(value)}`);
}
