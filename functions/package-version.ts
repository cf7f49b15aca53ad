/** The version of this package. */
import { createRequire } from "node:module";

export function readVersion(): string {
  // By package name, because the path differs between the built module and the source.
  return (createRequire(import.meta.url)("fovea/package.json") as { version: string }).version;
}
