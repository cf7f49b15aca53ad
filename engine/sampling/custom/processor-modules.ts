/** Hooks of Node's module loader for logits processor modules, installed once per thread. */
import { readFileSync } from "node:fs";
import { registerHooks, stripTypeScriptTypes } from "node:module";
import { pathToFileURL } from "node:url";

import { moduleUrl } from "../../module-url.ts";

const ownUrl = moduleUrl("../../index", import.meta.url).href;

/** Prefix of a request to resolve a specifier like a file of another folder would. */
const fromFolder = "fovea-from-folder:";

let isPrepared = false;

/**
 * Lets modules of any folder import `fovea` and get the module instances of this thread: a second copy of
 * `LogitsProcessor` would make every class look foreign. Inside node_modules, where Node does not accept TypeScript,
 * types are stripped here.
 */
export function prepareProcessorModules(): void {
  if (isPrepared) return;
  isPrepared = true;
  registerHooks({
    resolve(specifier, context, nextResolve) {
      if (specifier === "fovea") return { url: ownUrl, shortCircuit: true };
      if (!specifier.startsWith(fromFolder)) return nextResolve(specifier, context);
      const request = JSON.parse(specifier.slice(fromFolder.length)) as FolderRequest;
      return nextResolve(request.specifier, { ...context, parentURL: request.parentUrl });
    },
    load(url, context, nextLoad) {
      const isInstalledTypeScript = /^file:.*\/node_modules\/.*\.m?ts$/.test(url);
      if (!isInstalledTypeScript || context.format === "commonjs-typescript") return nextLoad(url, context);
      const source = stripTypeScriptTypes(readFileSync(new URL(url), "utf8"));
      return { format: "module", source, shortCircuit: true };
    },
  });
}

interface FolderRequest {
  readonly specifier: string;
  readonly parentUrl: string;
}

/** The URL that a file of `folder` would get by importing `specifier`. Throws Node's error if there is none. */
export function resolveFromFolder(specifier: string, folder: string): string {
  prepareProcessorModules();
  const request: FolderRequest = { specifier, parentUrl: pathToFileURL(`${folder}/`).href };
  return import.meta.resolve(fromFolder + JSON.stringify(request));
}
