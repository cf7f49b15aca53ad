/** The variables that a part of a template sees. */
import { Undefined } from "./values.ts";
import type { Value } from "./values.ts";

export class Scope {
  readonly #variables = new Map<string, Value>();
  readonly #parent: Scope | null;

  constructor(parent: Scope | null) {
    this.#parent = parent;
  }

  get(name: string): Value {
    const value = this.#variables.get(name);
    if (value !== undefined) return value;
    return this.#parent === null ? new Undefined(`'${name}'`) : this.#parent.get(name);
  }

  set(name: string, value: Value): void {
    this.#variables.set(name, value);
  }
}
