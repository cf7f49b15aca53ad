import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";

import { EngineError } from "../../../../engine/contract/errors.ts";
import { createSamplingParams } from "../../../../engine/contract/sampling-params.ts";
import type { SamplingParams } from "../../../../engine/contract/sampling-params.ts";
import { LogitsProcessor } from "../../../../engine/sampling/contract/logits-processor.ts";
import type { Logits } from "../../../../engine/sampling/contract/logits-processor.ts";
import { findInstalledProcessors } from "../../../../engine/sampling/custom/installed-processors.ts";
import {
  createLogitsProcessor,
  loadLogitsProcessors,
  validateWithProcessors,
} from "../../../../engine/sampling/custom/processor-loading.ts";
import type { LoadedLogitsProcessor } from "../../../../engine/sampling/custom/processor-loading.ts";
import { tryLogitsProcessors } from "../../../../engine/sampling/custom/try-processors.ts";
import { collectWarnings } from "../../../support/collected-warnings.ts";
import { goldenEngineConfig } from "../../../support/engine/engine-config.ts";
import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../../support/temporary-folder.ts";

let folder: TemporaryFolder;

beforeAll(async () => {
  folder = await createTemporaryFolder();
  await mkdir(join(folder.path, "steering"));
  await writeFile(
    join(folder.path, "steering", "things.mjs"),
    `import { LogitsProcessor, RequestLogitsProcessorAdapter } from "fovea";
     export const notAClass = 3;
     export const arrow = () => 3;
     export class Stranger {}
     export const nested = { Inner: class {} };
     export class Late extends LogitsProcessor {
       isArgmaxInvariant() { return true; }
       async apply(logits) { return logits; }
       async updateState() {}
     }
     export class LateCheck extends Late { static async validateParams() {} }
     export class NumberCheck extends Late { static validateParams = 5; }
     export class NullCheck extends Late { static validateParams = null; }
     export class Adapter extends RequestLogitsProcessorAdapter { isArgmaxInvariant() { return true; } }
     export class LateAdapter extends Adapter { async newRequestLogitsProcessor() { return null; } }`,
  );
  await writeFile(join(folder.path, "broken.mjs"), "export class {");
});

afterAll(() => folder[Symbol.asyncDispose]());

function load(className: string): Promise<unknown> {
  return loadLogitsProcessors([{ className, options: {} }], [folder.path]);
}

test("names of rules that are built in load nothing, and the others keep their places", async () => {
  const classNames = [
    "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor",
    "steering.things:Late",
    "mineru_vl_utils:MinerULogitsProcessor",
  ];
  const references = classNames.map((className) => ({ className, options: {} }));
  const loaded = await loadLogitsProcessors(references, [folder.path]);
  expect(loaded.map(({ name, position }) => [name, position])).toEqual([["steering.things:Late", "2 of 3"]]);
  await expect(load("vllm.model_executor.models.deepseek_ocr:Other")).rejects.toThrow(/the module was not found/);
});

const failures: [string, string][] = [
  ["steering.things", "it has no colon; expected <module>:<export>, such as steering.target_token:TargetToken."],
  ["steering:things:Stranger", "it has 2 colons; expected <module>:<export>, "],
  [":Stranger", "there is no module before the colon; "],
  ["steering.things:", "there is no export after the colon; "],
  ["steering.missing:Processor", "the module was not found; tried "],
  ["steering.things:Missing", "there is no export Missing; there are: "],
  ["steering.things:nested.Missing", "there is no export Missing; there are: Inner."],
  ["steering.things:notAClass", "the export is not a class but of type number."],
  ["steering.things:arrow", "the export is not a class but a function."],
  ["steering.things:Stranger", "the class does not extend LogitsProcessor."],
  ["steering.things:nested.Inner", "the class does not extend LogitsProcessor."],
  ["steering.things:NumberCheck", "its static validateParams must be a function, got 5."],
  ["steering.things:NullCheck", "its static validateParams must be a function, got null."],
];

test.for(failures)("%s: %s", async ([className, reason]) => {
  await expect(load(className)).rejects.toThrow(
    `Logits processor 1 of 1, ${className}, could not be loaded: ${reason}`,
  );
});

test("a missing module lists every place tried", async () => {
  const tried = ["ts", "mts", "js", "mjs"].map((extension) => join(folder.path, "a", `b.${extension}`)).join(", ");
  await expect(load("a.b:C")).rejects.toThrow(`tried ${tried}, the package a.b from ${folder.path}`);
});

test("paths and file URLs lead to the same module as a dotted path", async () => {
  const file = join(folder.path, "steering", "things.mjs");
  for (const module of [file, file.slice(0, -".mjs".length), pathToFileURL(file).href]) {
    await expect(load(`${module}:Stranger`)).rejects.toThrow("the class does not extend LogitsProcessor.");
  }
});

test("a module that does not compile is an error with its cause", async () => {
  const failure = load("broken:Processor");
  await expect(failure).rejects.toMatchObject({ code: "invalid_logits_processor", cause: expect.any(Error) });
});

test("a module that never loads is no longer waited for after a minute", async () => {
  const file = join(folder.path, "never.mjs");
  await writeFile(file, "await new Promise(() => {});");
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  onTestFinished(() => void vi.useRealTimers());
  const passMinute = setInterval(() => void vi.advanceTimersByTime(60_000), 100);
  await expect(load("never:Processor")).rejects.toThrow(
    "Logits processor 1 of 1, never:Processor, could not be loaded: it did not load within 60 seconds; it may await " +
      `something that never happens. Its module is ${pathToFileURL(file).href}.`,
  );
  clearInterval(passMinute);
});

test("a folder that cannot be searched for packages is warned of", async () => {
  const warnings = collectWarnings();
  const missing = join(folder.path, "missing");
  expect(await findInstalledProcessors([folder.path, missing])).toEqual([]);
  await expect
    .poll(() => warnings)
    .toEqual([expect.stringMatching(`^The folder ${missing} of the logits processor path cannot be read: ENOENT`)]);
});

test("a class without required methods is rejected with their names", () => {
  abstract class Incomplete extends LogitsProcessor {
    override isArgmaxInvariant(): boolean {
      return true;
    }
  }
  // As in JavaScript, which has no abstract classes.
  const processorClass = Incomplete as unknown as LoadedLogitsProcessor["processorClass"];
  const reference = { className: "a:Incomplete", options: {} };
  const loaded = { name: "a:Incomplete", position: "2 of 3", processorClass, options: {}, reference };
  expect(() => createLogitsProcessor(loaded, goldenEngineConfig("llama", folder.path))).toThrow(
    "Logits processor 2 of 3, a:Incomplete, could not be loaded: the class lacks apply, updateState.",
  );
});

test("a class with asynchronous methods is rejected with their names", async () => {
  await expect(load("steering.things:LateCheck")).rejects.toThrow(
    "Logits processor 1 of 1, steering.things:LateCheck, could not be loaded: validateParams must not be asynchronous.",
  );
  const [loaded] = await loadLogitsProcessors([{ className: "steering.things:Late", options: {} }], [folder.path]);
  expect(() => createLogitsProcessor(loaded!, goldenEngineConfig("llama", folder.path))).toThrow(
    "Logits processor 1 of 1, steering.things:Late, could not be loaded: apply, updateState must not be asynchronous.",
  );
});

test.for<[string, string]>([
  ["Adapter", "the class lacks newRequestLogitsProcessor."],
  ["LateAdapter", "newRequestLogitsProcessor must not be asynchronous."],
])("%s, which adapts functions of requests, is rejected: %s", async ([name, reason]) => {
  const reference = { className: `steering.things:${name}`, options: {} };
  const [loaded] = await loadLogitsProcessors([reference], [folder.path]);
  const config = goldenEngineConfig("llama", folder.path);
  expect(() => createLogitsProcessor(loaded!, config)).toThrow(
    `Logits processor 1 of 1, steering.things:${name}, could not be loaded: ${reason}`,
  );
  const tried = await tryLogitsProcessors({
    ...config,
    logitsProcessors: [reference],
    logitsProcessorPath: [folder.path],
  });
  expect(tried).toEqual([{ name: reference.className, error: reason }]);
});

class Idle extends LogitsProcessor {
  override isArgmaxInvariant(): boolean {
    return true;
  }
  override updateState(): void {}
  override apply(logits: Logits): Logits {
    return logits;
  }
}

test("a processor's rejection is the caller's error, with the processor's message", () => {
  class Strict extends Idle {
    static override validateParams(): void {
      throw new Error("target_token must be a number");
    }
  }
  expect(() => validateWithProcessors([{ name: "a:Strict", processorClass: Strict }], createSamplingParams())).toThrow(
    new EngineError("invalid_argument", "target_token must be a number", { parameter: "samplingParams.extraArgs" }),
  );
});

test("a rejection with a value that has no text is the caller's error too", () => {
  class Silent extends Idle {
    static override validateParams(): void {
      throw Object.create(null);
    }
  }
  expect(() => validateWithProcessors([{ name: "a:Silent", processorClass: Silent }], createSamplingParams())).toThrow(
    new EngineError("invalid_argument", "it threw a value that has no text", { parameter: "samplingParams.extraArgs" }),
  );
});

test.for<[string, () => unknown]>([
  [
    "loops",
    () => {
      for (;;);
    },
  ],
  ["backtracks for ever in a regular expression", () => /^(a+)+$/.test(`${"a".repeat(60)}b`)],
  [
    "loops, catching all errors",
    () => {
      for (;;) {
        try {
          for (;;);
        } catch {
          continue;
        }
      }
    },
  ],
])("a processor that %s during validation is ended and named, and is called again for the next request", ([, loop]) => {
  class Looping extends Idle {
    static override validateParams({ extraArgs }: SamplingParams): void {
      if ("loops" in extraArgs) loop();
    }
  }
  const loaded = [{ name: "a:Looping", processorClass: Looping }];
  expect(() => validateWithProcessors(loaded, createSamplingParams({ extraArgs: { loops: true } }))).toThrow(
    new EngineError(
      "logits_processor_failed",
      "The logits processor a:Looping failed: validateParams() did not return within 1000 ms.",
    ),
  );
  validateWithProcessors(loaded, createSamplingParams());
});

test("a processor that writes into a request's parameters is rejected, and no other request sees the write", () => {
  const defaults = [1, 2];
  const writes: ((params: SamplingParams) => void)[] = [
    ({ extraArgs }) => Object.assign(extraArgs, { harm: 1 }),
    ({ extraArgs }) => (extraArgs.defaults as number[]).push(3),
    ({ stop }) => (stop as string[]).push("a"),
    (params) => Object.assign(params, { maxTokens: 1 }),
  ];
  for (const write of writes) {
    class Writing extends Idle {
      static override validateParams(params: SamplingParams): void {
        write(params);
      }
    }
    const params = createSamplingParams({ extraArgs: { defaults } });
    expect(() => validateWithProcessors([{ name: "a:Writing", processorClass: Writing }], params)).toThrow(
      /^Cannot (add property|assign to read only property)/,
    );
  }
  expect(defaults).toEqual([1, 2]);
  expect(createSamplingParams()).toMatchObject({ extraArgs: {}, stop: [], maxTokens: null });
});
