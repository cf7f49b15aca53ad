/** What travels to a machine that is lent for minutes: a tree of two files, and the parts of a pack beside it. */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** The most that travels with one command, the tree included. */
const LIMIT_MIB = 64;

/** For the two files, and the headers of an archive. */
const SLACK_MIB = 2;

/** A command carries at most eight files: four parts of this size, and the three small files of the pack. */
export const LEASE_PART_MIB = 15;

export const LEASE_TRANSFER_BYTES = (LIMIT_MIB - SLACK_MIB) * 2 ** 20;

export const leaseBranch = "gpu-lease";

const script = "test/gpu/lease.sh";

/** Of what stays on this machine: without these lines, the packages would travel. */
const ignored = "/.cache/\n/gpu-pack/\n/gpu-reports/\n/node_modules/\n";

/**
 * Sets the branch `gpu-lease` to a commit that has nothing but the script of the lease and its `.gitignore`. The tree of
 * the sources has more than 64 MiB, so it travels as a part of the pack, compressed.
 */
export function writeLeaseBranch(repository: string): void {
  const git = (args: readonly string[], input?: string | Buffer): string =>
    execFileSync("git", args, { cwd: repository, input, encoding: "utf8" }).trim();
  const blob = (content: string | Buffer): string => git(["hash-object", "-w", "--stdin"], content);
  const directory = (...entries: readonly string[]): string => git(["mktree"], `${entries.join("\n")}\n`);
  const ofScript = blob(readFileSync(join(repository, script)));
  const innermost = directory(`100755 blob ${ofScript}\tlease.sh`);
  const tests = directory(`040000 tree ${innermost}\tgpu`);
  const root = directory(`100644 blob ${blob(ignored)}\t.gitignore`, `040000 tree ${tests}\ttest`);
  const commit = git(["commit-tree", root, "-m", "Carry a pack to a GPU machine"]);
  git(["update-ref", `refs/heads/${leaseBranch}`, commit]);
}
