/** Sources of logits processors that keep something per row and follow the rows through every change of the batch. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";

export interface RowProcessor {
  readonly name: string;
  /** Body of a function of `extraArgs` and `outputTokenIds`: what is kept of a row, or undefined. */
  readonly keep: string;
  /** Body of a function of `logits`, `index` and `row`, the kept value. */
  readonly steer: string;
}

/** Writes the processor into the folder, and returns the name under which an engine loads it. */
export async function writeRowProcessor(folder: string, { name, keep, steer }: RowProcessor): Promise<string> {
  const source = `
import { LogitsProcessor } from "fovea";

function keep(extraArgs, outputTokenIds) {${keep}}
function steer(logits, index, row) {${steer}}

export class ${name} extends LogitsProcessor {
  #rows = new Map();
  isArgmaxInvariant() { return false; }
  updateState(update) {
    for (const index of update?.removed ?? []) this.#rows.delete(index);
    for (const { index, params, outputTokenIds } of update?.added ?? []) {
      const row = keep(params.extraArgs, outputTokenIds);
      if (row === undefined) this.#rows.delete(index);
      else this.#rows.set(index, row);
    }
    for (const { from, to, directionality } of update?.moved ?? []) {
      const [moved, displaced] = [this.#rows.get(from), this.#rows.get(to)];
      this.#rows.delete(from);
      this.#rows.delete(to);
      if (moved) this.#rows.set(to, moved);
      if (displaced && directionality === "swap") this.#rows.set(from, displaced);
    }
  }
  apply(logits) {
    for (const [index, row] of this.#rows) steer(logits, index, row);
    return logits;
  }
}
`;
  const file = join(folder, `${name}.js`);
  await writeFile(file, source);
  await writeFile(join(folder, "package.json"), '{ "type": "module" }');
  return `${file}:${name}`;
}
