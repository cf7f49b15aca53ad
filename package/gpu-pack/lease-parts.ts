/** How much of a pack fits beside the working tree that travels with each command of a lease. */
import { execFileSync } from "node:child_process";
import { lstatSync } from "node:fs";
import { join } from "node:path";

const MIB = 2 ** 20;

/** The most that travels with one command. */
const LIMIT_MIB = 64;

/** For files that are added between the pack and the loan. */
const SLACK_MIB = 1;

/** A tar archive has a header for each file and fills its last block. */
const TAR_BLOCK_BYTES = 512;

/** The tree as a tar archive: files that git tracks, and others that it does not ignore. */
function treeBytes(repository: string): number {
  const list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const paths = execFileSync("git", list, { cwd: repository, encoding: "utf8", maxBuffer: 64 * MIB }).split("\0");
  return paths.filter(Boolean).reduce((sum, path) => {
    const stats = lstatSync(join(repository, path), { throwIfNoEntry: false });
    const numBlocks = 1 + Math.ceil((stats?.size ?? 0) / TAR_BLOCK_BYTES);
    return sum + numBlocks * TAR_BLOCK_BYTES;
  }, 0);
}

/** @throws Error if the tree leaves no room. */
export function leasePartMib(repository: string): number {
  const treeMib = treeBytes(repository) / MIB;
  const partMib = Math.floor(LIMIT_MIB - SLACK_MIB - treeMib);
  if (partMib >= 1) return partMib;
  throw new Error(`The working tree has ${treeMib.toFixed(1)} MiB, so nothing fits beside it into ${LIMIT_MIB} MiB.`);
}
