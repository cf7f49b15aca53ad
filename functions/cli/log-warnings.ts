/** Warnings of the process as lines of the log. */
import process from "node:process";

import type { Logger } from "../logger.ts";

/**
 * Logs warnings of the engine, of logits processors and of Node in place of Node's own lines. Logs none if Node was
 * started with `--no-warnings`. Deprecations stay with Node: it has options that hide them or show where they are from.
 */
export function logWarnings(logger: Logger): void {
  const nodeListener = process.listeners("warning").find(({ name }) => name === "onWarning");
  if (nodeListener === undefined) return;
  process.off("warning", nodeListener);
  process.on("warning", (warning: Error & { readonly code?: string }) => {
    const { name, message, code } = warning;
    switch (name) {
      case "DeprecationWarning":
        return nodeListener(warning);
      // Of the Node that comes with Fovea, which works with these features.
      case "ExperimentalWarning":
        return logger.debug(message, { warning: name });
      case "Warning":
        return logger.warn(message);
      default:
        logger.warn(message, { warning: name, code });
    }
  });
}
