/** Preloaded into a process, writes the URL of every module that it loads to standard error. */
import { registerHooks } from "node:module";

registerHooks({
  load(url, context, nextLoad) {
    process.stderr.write(`loads ${url}\n`);
    return nextLoad(url, context);
  },
});
