/** Splits the name of a logits processor into module and export. */

export interface ProcessorName {
  /** Dotted path, package specifier, path or `file:` URL. */
  readonly modulePath: string;
  /** `["Outer", "Inner"]` for a dotted export. */
  readonly exportPath: readonly string[];
}

const expected = "expected <module>:<export>, such as steering.target_token:TargetToken";

/**
 * A path of a URL may contain colons (`file:///srv/app:1/steering.ts`). Throws an Error that says what is wrong with the
 * name.
 */
export function parseProcessorName(name: string): ProcessorName {
  const scheme = name.startsWith("file:") ? "file:" : "";
  const rest = name.slice(scheme.length);
  const colon = rest.lastIndexOf(":");
  if (colon === -1) throw new Error(`it has no colon; ${expected}.`);
  const [modulePath, exportPath] = [rest.slice(0, colon), rest.slice(colon + 1)];
  const numColons = rest.split(":").length - 1;
  if (numColons > 1 && scheme === "") throw new Error(`it has ${numColons} colons; ${expected}.`);
  if (modulePath === "") throw new Error(`there is no module before the colon; ${expected}.`);
  if (exportPath === "") throw new Error(`there is no export after the colon; ${expected}.`);
  return { modulePath: scheme + modulePath, exportPath: exportPath.split(".") };
}
