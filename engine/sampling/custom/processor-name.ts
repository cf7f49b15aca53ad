/** Splits the name of a logits processor into module and export. */

export interface ProcessorName {
  /** Dotted path, package specifier, path or `file:` URL. */
  readonly modulePath: string;
  /** `["Outer", "Inner"]` for a dotted export. */
  readonly exportPath: readonly string[];
}

const expected = "expected <module>:<export>, such as steering.target_token:TargetToken";

/** Ignores the colon of a `file:` URL. Throws an Error that says what is wrong with the name. */
export function parseProcessorName(name: string): ProcessorName {
  const scheme = name.startsWith("file:") ? "file:" : "";
  const parts = name.slice(scheme.length).split(":");
  if (parts.length === 1) throw new Error(`it has no colon; ${expected}.`);
  if (parts.length > 2) throw new Error(`it has ${parts.length - 1} colons; ${expected}.`);
  const [modulePath, exportPath] = parts;
  if (modulePath === "") throw new Error(`there is no module before the colon; ${expected}.`);
  if (exportPath === "") throw new Error(`there is no export after the colon; ${expected}.`);
  return { modulePath: scheme + modulePath, exportPath: exportPath!.split(".") };
}
