import { describe, expect, test } from "vitest";

import { EngineError } from "../../../../engine/contract/errors.ts";
import { LogitsProcessor } from "../../../../engine/sampling/contract/logits-processor.ts";
import type { Logits } from "../../../../engine/sampling/contract/logits-processor.ts";
import { takeClasses } from "../../../../engine/sampling/custom/given-classes.ts";
import type { GivenLogitsProcessor } from "../../../../engine/sampling/custom/given-classes.ts";

class Silent extends LogitsProcessor {
  override isArgmaxInvariant(): boolean {
    return true;
  }
  override updateState(): void {}
  override apply(logits: Logits): Logits {
    return logits;
  }
}

class Known extends Silent {
  static readonly moduleUrl: string = import.meta.url;
}

class Heir extends Known {}

class Remote extends Silent {
  static readonly moduleUrl = "https://example.com/remote.js";
}

class Stranger {
  readonly isProcessor = false;
}

const anonymous = (() =>
  class extends Silent {
    static readonly moduleUrl = import.meta.url;
  })();

describe("logits processors given as classes", () => {
  test("are referred to by the module that they name and their own name", () => {
    const options = { strength: 2 };
    const className = `${import.meta.url}:Known`;
    expect(takeClasses([Known, { class: Known, options }])).toEqual([
      {
        name: "Known",
        position: "1 of 2",
        processorClass: Known,
        options: {},
        reference: { name: "Known", className, options: {} },
      },
      {
        name: "Known",
        position: "2 of 2",
        processorClass: Known,
        options,
        reference: { name: "Known", className, options },
      },
    ]);
  });

  // As programs in JavaScript can: the type of the argument excludes these values.
  test.for<[string, unknown, string]>([
    [
      "a class that names no module",
      Silent,
      'Silent, could not be loaded: it does not say which module exports it. Add "static moduleUrl = import.meta.url;" to the class, and export it as Silent from a module that does not create the engine.',
    ],
    [
      "a class whose base class names a module",
      Heir,
      "Heir, could not be loaded: it does not say which module exports it.",
    ],
    [
      "a class of another machine's module",
      Remote,
      "Remote, could not be loaded: its static moduleUrl must be a file: URL, such as import.meta.url; got https://example.com/remote.js.",
    ],
    ["a class without a name", anonymous, "without a name, could not be loaded: the class needs the name under which"],
    ["another class", Stranger, "Stranger, could not be loaded: the class does not extend LogitsProcessor."],
    [
      "an instance",
      { class: 3, options: {} },
      "without a name, could not be loaded: the export is not a class but of type number.",
    ],
  ])("%s is rejected with the way to repair it", ([, given, reason]) => {
    let error: unknown;
    try {
      takeClasses([Known, given as GivenLogitsProcessor]);
    } catch (thrown) {
      error = thrown;
    }
    expect(error).toBeInstanceOf(EngineError);
    expect(error).toMatchObject({
      code: "invalid_logits_processor",
      message: expect.stringContaining(`Logits processor class 2 of 2, ${reason}`),
    });
  });
});
