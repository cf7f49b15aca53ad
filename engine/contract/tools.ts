/** Tools of a conversation: the functions that a model may call, and its calls. */

/** A JSON object. */
export type JsonObject = Readonly<Record<string, unknown>>;

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
  readonly arguments: JsonObject;
}
