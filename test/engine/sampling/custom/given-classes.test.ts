import { describe, expect, test } from "vitest";

import type { EngineConfig } from "../../../../engine/contract/config.ts";
import { EngineError } from "../../../../engine/contract/errors.ts";
import { createEngine } from "../../../../engine/create-engine.ts";
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
    expect(takeClasses([Known, { class: Known, options }, { class: Known }])).toMatchObject([
      {
        name: "Known",
        position: "1 of 3",
        processorClass: Known,
        options: {},
        reference: { name: "Known", className, options: {} },
      },
      {
        name: "Known",
        position: "2 of 3",
        processorClass: Known,
        options,
        reference: { name: "Known", className, options },
      },
      { position: "3 of 3", options: {}, reference: { name: "Known", className, options: {} } },
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

  const expected =
    'a class or { class, options }. Names go into the first argument of createEngine: createEngine({ logitsProcessors: ["steering:TargetToken"] })';
  const inList = "In the second argument of createEngine, logitsProcessors";
  const instance = new Known({} as EngineConfig, "cpu", {});

  test.for<[string, unknown, string]>([
    ["a class in place of a list", Known, ` is the class Known; expected a list, each element ${expected}.`],
    ["a name", ["a:B"], `[0] is "a:B"; expected ${expected}.`],
    ["undefined", [Known, undefined], `[1] is missing; expected ${expected}.`],
    ["an empty object", [{}], "[0].class is missing; expected a class."],
    ["options that are a number", [{ class: Known, options: 5 }], "[0].options is 5; expected an object."],
    [
      "an instance",
      [Known, instance],
      "[1] is an instance of a class; expected the class, which the engine thread constructs.",
    ],
    [
      "options with a function",
      [{ class: Known, options: { weigh() {} } }],
      "[0].options cannot be copied to the engine thread: weigh() {} could not be cloned; expected data without functions.",
    ],
  ])("%s ends createEngine with what is expected", ([, logitsProcessors, problem]) => {
    expect(() => createEngine({}, { logitsProcessors: logitsProcessors as GivenLogitsProcessor[] })).toThrow(
      expect.objectContaining({ code: "invalid_configuration", message: inList + problem }),
    );
  });
});
