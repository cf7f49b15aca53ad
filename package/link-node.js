/**
 * Runs after `npm ci`: makes the Node that comes with the packages `node_modules/.bin/node`, which is the first on the
 * PATH of npm's scripts.
 *
 * npm makes that link itself. npm 10, which ships with Node 20 and 22, removes it again, together with the package for
 * the other processor, whose program has the same name.
 */
import { existsSync, mkdirSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const modules = fileURLToPath(new URL("../node_modules", import.meta.url));
const packaged = join(`node-${process.platform}-${process.arch}`, "bin", "node");
const link = join(modules, ".bin", "node");

if (existsSync(join(modules, packaged)) && !existsSync(link)) {
  mkdirSync(dirname(link), { recursive: true });
  // A broken link.
  rmSync(link, { force: true });
  symlinkSync(join("..", packaged), link);
}
