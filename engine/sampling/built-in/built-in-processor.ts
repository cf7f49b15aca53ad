/** The base of the engine's own logits processors, each of which few requests use. */
import type { EngineConfig } from "../../contract/config.ts";
import { LogitsProcessor } from "../contract/logits-processor.ts";
import { RowStates } from "../contract/row-states.ts";

/** Mutable: it keeps a state for each row that uses it. */
export abstract class BuiltInLogitsProcessor<State> extends LogitsProcessor {
  protected readonly rows = new RowStates<State>();

  constructor(config: EngineConfig) {
    super(config, config.device, {});
  }

  /** Whether a row uses it, as of the last update. If none does, `apply` and updates without added rows have no effect. */
  get isInUse(): boolean {
    return this.rows.size > 0;
  }

  /** Whether `apply` is going to read the row, as of the last update. */
  readsRow(rowIndex: number): boolean {
    return this.rows.get(rowIndex) !== undefined;
  }

  override isArgmaxInvariant(): boolean {
    return false;
  }
}
