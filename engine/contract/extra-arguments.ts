/** Arguments that a request gives to logits processors, by name. */

export type ExtraArgument = string | number | boolean | readonly (string | number | boolean)[];
export type ExtraArguments = Readonly<Record<string, ExtraArgument>>;

/** Every argument is copied to the engine thread and given to each logits processor. */
export const extraArgumentLimits = {
  /** Arguments of one request, for all its logits processors. */
  arguments: 64,
  nameCharacters: 1024,
  textCharacters: 65_536,
  listEntries: 16_384,
} as const;

/** Whether a value that JSON.parse returned is an object of arguments within the limits. */
export function isExtraArguments(value: unknown): value is ExtraArguments {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
  const entries = Object.entries(value);
  return (
    entries.length <= extraArgumentLimits.arguments &&
    entries.every(([name, argument]) => isName(name) && (isScalar(argument) || isList(argument)))
  );
}

/** Whether the type is that of an argument. Programs in JavaScript can give anything. */
export function isExtraArgument(value: unknown): value is ExtraArgument {
  return Array.isArray(value) ? value.every(isOfScalarType) : isOfScalarType(value);
}

function isOfScalarType(value: unknown): boolean {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}

/** Assigning `__proto__` would change the prototype of the object that the arguments are copied to. */
function isName(name: string): boolean {
  return name !== "__proto__" && name.length <= extraArgumentLimits.nameCharacters;
}

function isList(value: unknown): boolean {
  return Array.isArray(value) && value.length <= extraArgumentLimits.listEntries && value.every(isScalar);
}

function isScalar(value: unknown): boolean {
  if (typeof value === "string") return value.length <= extraArgumentLimits.textCharacters;
  return typeof value === "boolean" || Number.isFinite(value);
}
