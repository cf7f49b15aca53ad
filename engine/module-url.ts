/** Addresses of modules that threads load by themselves. */
import { extname } from "node:path";

/**
 * The URL of the module at `path`, which has no extension: modules are `.ts` in the repository and `.js` in the built
 * package, and the asking module tells which of the two this is.
 *
 * @param path Relative to the asking module, such as `./pixel-worker`.
 * @param askingUrl `import.meta.url` of the asking module.
 */
export function moduleUrl(path: string, askingUrl: string): URL {
  const extension = extname(new URL(askingUrl).pathname);
  return new URL(path + extension, askingUrl);
}
