/** A logits processor that programs can give to an engine as a class, and one that the module does not export by name. */
import { TargetToken } from "../../examples/steering/target-token.ts";

export class Given extends TargetToken {
  static readonly moduleUrl: string = import.meta.url;
}

class Hidden extends Given {
  static override readonly moduleUrl = import.meta.url;
}

export const hidden = Hidden;
