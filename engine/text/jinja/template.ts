/**
 * Jinja templates as transformers evaluates them: Jinja 3.1 in its sandbox with `trim_blocks`, `lstrip_blocks`, loop
 * controls, the `generation` tag and its own `tojson`. Other templates cannot be included.
 */
import { functions } from "./functions.ts";
import { parseTemplate } from "./parse-template.ts";
import { renderBody } from "./render.ts";
import { Scope } from "./scope.ts";
import type { Statement } from "./syntax.ts";
import { toValue } from "./values.ts";

export class JinjaTemplate {
  readonly body: readonly Statement[];

  /** @throws JinjaError for a template that is not valid. */
  constructor(source: string) {
    this.body = parseTemplate(source);
  }

  /**
   * @param variables Plain data, as in JSON, and `Callable` functions.
   * @throws JinjaError where Jinja or Python would fail.
   */
  render(variables: Readonly<Record<string, unknown>>): string {
    const globals = new Scope(null);
    for (const [name, value] of functions) globals.set(name, value);
    const scope = new Scope(globals);
    for (const [name, value] of Object.entries(variables)) if (value !== undefined) scope.set(name, toValue(value));
    const output: string[] = [];
    renderBody(this.body, scope, output);
    return output.join("");
  }
}
