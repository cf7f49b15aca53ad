/** URLs of modules that threads load by themselves. */
import { extname } from "node:path";

/**
 * Returns the URL of the module at `path`, which has no extension: modules are `.ts` in the repository and `.js` in the
 * built package. The suffix of the calling module selects one.
 *
 * @param path Relative to the calling module, such as `./pixel-worker`.
 * @param askingUrl `import.meta.url` of the calling module.
 */
export function moduleUrl(path: string, askingUrl: string): URL {
  const extension = extname(new URL(askingUrl).pathname);
  return new URL(path + extension, askingUrl);
}
