/**
 * Drops WebAssembly machine code, in a process that has had an engine if the argument is a folder for its cache. V8
 * writes to standard output what it discards.
 */
import { setFlagsFromString } from "node:v8";

import { createEngine } from "../../../engine/index.ts";
import { collectGarbage } from "../../../engine/runtime/collect-garbage.ts";
import { goldenEngineConfig } from "../../support/engine/engine-config.ts";

/** Imports `e.f` and exports `r`, which calls it. Neither has parameters or results. */
const caller = Buffer.from("AGFzbQEAAAABBAFgAAACBwEBZQFmAAADAgEABwUBAXIAAQoGAQQAEAAL", "base64");

/** Nothing of it is reachable when this returns. */
function callFromWasm(): void {
  const instance = new WebAssembly.Instance(new WebAssembly.Module(caller), { e: { f: () => {} } });
  (instance.exports as { r(): void }).r();
}

const [cacheFolder] = process.argv.slice(2);
if (cacheFolder !== undefined) {
  const engine = createEngine(goldenEngineConfig("llama", cacheFolder), { imageSources: [] });
  await engine.ready;
  await engine.close();
}
// Code is made at the first call and collected as soon as it is dropped.
setFlagsFromString("--wasm-wrapper-tiering-budget=1");
setFlagsFromString("--stress-wasm-code-gc");
setFlagsFromString("--trace-wasm-code-gc");
callFromWasm();
await collectGarbage();
