/** Tools of a conversation: the functions that a model may call, and its calls. */

/** A JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>;

/**
 * A number of a JSON text that is integral and yet a float, such as `10.0` and `1e20`. JavaScript has one type for both;
 * chat templates print it as Python does.
 */
export class JsonFloat {
  readonly value: number;
  constructor(value: number) {
    this.value = value;
  }
  toJSON(): number {
    return this.value;
  }
}

declare global {
  interface JSON {
    /** An object that `stringify` writes as this text. TypeScript's libraries do not have it yet. */
    rawJSON(text: string): unknown;
  }
}

/** An integer of a JSON text that a `number` would round, such as an identifier of 19 digits. */
export class JsonInteger {
  readonly value: bigint;
  constructor(value: bigint) {
    this.value = value;
  }
  toJSON(): unknown {
    return JSON.rawJSON(String(this.value));
  }
}

export interface ToolDefinition {
  readonly name: string;
  readonly description: string | null;
  /** JSON Schema of the arguments; null for a function without parameters. */
  readonly parameters: JsonObject | null;
  /** Whether the arguments of every call must match `parameters`, even if the model is free to call or not. */
  readonly strict: boolean;
}

/** A call in an earlier turn of the assistant. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  /** Plain numbers that are integral are integers for the template; see `JsonFloat` and `JsonInteger` for the others. */
  readonly arguments: JsonObject;
}
