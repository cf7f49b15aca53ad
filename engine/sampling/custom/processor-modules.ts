/** Hooks of Node's module loader for modules of users (logits processors, pipelines, models), installed once per thread. */
import { readFileSync } from "node:fs";
import { registerHooks, stripTypeScriptTypes } from "node:module";
import { pathToFileURL } from "node:url";

import { moduleUrl } from "../../module-url.ts";

/** By specifier: the module of this thread. */
const ownUrls: Readonly<Record<string, string>> = {
  fovea: moduleUrl("../../index", import.meta.url).href,
  "fovea/models": moduleUrl("../../model-parts", import.meta.url).href,
  "fovea/pipelines": moduleUrl("../../pipeline-parts", import.meta.url).href,
};

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
      const ownUrl = Object.hasOwn(ownUrls, specifier) ? ownUrls[specifier] : undefined;
      if (ownUrl !== undefined) return { url: ownUrl, shortCircuit: true };
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
