/** Archives in parts, and the script that joins them, with small files. */
import { execFileSync, spawnSync } from "node:child_process";
import { createReadStream } from "node:fs";
import { copyFile, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";

import { archiveFile, archiveFolder, groupParts, writeManifest } from "../../package/gpu-pack/archives.ts";
import type { Archive } from "../../package/gpu-pack/archives.ts";
import { keepGpuCode } from "../../package/gpu-pack/gpu-code.ts";
import { installedPackages } from "../../package/gpu-pack/installed-packages.ts";
import {
  LEASE_PART_MIB,
  leaseBranch,
  LEASE_TRANSFER_BYTES,
  writeLeaseBranch,
} from "../../package/gpu-pack/lease-parts.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";
import { randomNumbers } from "./numbers.ts";

const repository = fileURLToPath(new URL("../..", import.meta.url));
const partBytes = 10_000;
let folder: TemporaryFolder;
let pack: string;

beforeEach(async () => {
  folder = await createTemporaryFolder();
  pack = join(folder.path, "pack");
  await mkdir(pack);
});

afterEach(() => folder[Symbol.asyncDispose]());

/** A pack whose "node" is a script that runs the Node of this test. */
async function writePack(): Promise<Archive[]> {
  const node = join(folder.path, "node");
  await writeFile(node, `#!/bin/sh\nexec '${process.execPath}' "$@"\n`);
  const source = join(folder.path, "source");
  await mkdir(join(source, "deep/folder with spaces"), { recursive: true });
  // Numbers do not compress, so the parts are several.
  await writeFile(join(source, "deep/folder with spaces/numbers"), Buffer.from(randomNumbers(12_000, 1).buffer));
  await writeFile(join(source, "text"), "a text\n");
  await symlink("text", join(source, "link"));
  const options = { folder: pack, partBytes };
  const archives = [
    await archiveFile("node", createReadStream(node), options),
    await archiveFolder("code", source, options),
  ];
  writeManifest(pack, archives, { commit: "none" });
  await copyFile(join(repository, "test/gpu/assemble.sh"), join(pack, "assemble.sh"));
  return archives;
}

/** With nothing in the environment but the system's programs. */
function assemble(target: string): { readonly status: number | null; readonly stderr: string } {
  return spawnSync("/bin/sh", [join(pack, "assemble.sh"), target], {
    env: { PATH: "/usr/bin:/bin" },
    cwd: "/",
    encoding: "utf8",
  });
}

test("parts are at most as large as asked, and the manifest adds up", async () => {
  const archives = await writePack();
  const manifest = JSON.parse(await readFile(join(pack, "MANIFEST.json"), "utf8"));
  expect(manifest.archives).toEqual(archives);
  expect(archives[1]!.parts.length).toBeGreaterThan(3);
  let total = 0;
  for (const { name, bytes } of archives.flatMap(({ parts }) => parts)) {
    expect((await stat(join(pack, name))).size).toBe(bytes);
    expect(bytes).toBeLessThanOrEqual(partBytes);
    total += bytes;
  }
  expect(manifest.bytes).toBe(total);
});

test("the script puts together what was packed", async () => {
  await writePack();
  const target = join(folder.path, "assembled here");
  expect(assemble(target)).toMatchObject({ status: 0, stderr: "" });
  const numbers = await readFile(join(target, "deep/folder with spaces/numbers"));
  expect(numbers.equals(Buffer.from(randomNumbers(12_000, 1).buffer))).toBe(true);
  expect(await readFile(join(target, "link"), "utf8")).toBe("a text\n");
  expect((await stat(join(target, "bin/node"))).mode & 0o111).not.toBe(0);
});

test("the script names the parts that are missing or damaged, and unpacks nothing", async () => {
  const [first, second] = (await writePack())[1]!.parts.map(({ name }) => name);
  const target = join(folder.path, "assembled");
  const bytes = await readFile(join(pack, first!));
  bytes[17]! ^= 1;
  await writeFile(join(pack, first!), bytes);
  expect(assemble(target)).toMatchObject({ status: 1, stderr: expect.stringContaining(`${first}: FAILED`) });
  await rm(join(pack, second!));
  expect(assemble(target)).toMatchObject({
    status: 1,
    stderr: expect.stringMatching(`not here yet:.*${second}`),
  });
  await expect(stat(target)).rejects.toMatchObject({ code: "ENOENT" });
});

test("the packages of a pack are those that run the service and the tests, with their own", async () => {
  const packages = installedPackages(repository, ["vitest"]);
  for (const name of ["koffi", "sharp", "onnxruntime-node", "zod", "vitest", "vite"]) {
    expect(packages).toContain(`node_modules/${name}`);
  }
  expect(
    packages.some((path) => path.startsWith("node_modules/@koromix/koffi-linux-x64") || path === "node_modules/koffi"),
  ).toBe(true);
  for (const name of ["typescript", "oxlint", "assemblyscript"]) expect(packages).not.toContain(`node_modules/${name}`);
  for (const path of packages) expect(await readFile(join(repository, path, "package.json"), "utf8")).toContain("{");
  expect(() => installedPackages(repository, ["no-such-package"])).toThrow(
    /no-such-package, which the repository needs/,
  );
});

/** A library of 64 bits whose section `.nv_fatbin` has machine code for these architectures, 64 bytes each, and PTX. */
function libraryFor(...architectures: readonly number[]): Buffer {
  const entries = [...architectures, 0].map((architecture) => {
    const entry = Buffer.alloc(128, architecture === 0 ? "ptx!" : "code");
    entry.fill(0, 0, 64);
    entry.writeUInt16LE(architecture === 0 ? 1 : 2, 0);
    entry.writeUInt32LE(64, 4);
    entry.writeBigUInt64LE(64n, 8);
    entry.writeUInt32LE(architecture === 0 ? 52 : architecture, 28);
    return entry;
  });
  const content = Buffer.concat(entries);
  const container = Buffer.alloc(16);
  container.writeUInt32LE(0xba55ed50, 0);
  container.writeUInt16LE(16, 6);
  container.writeBigUInt64LE(BigInt(content.length), 8);
  // Containers of kernels lie behind each other, with padding between.
  const section = Buffer.concat([container, content, Buffer.alloc(8), container, content]);
  const names = Buffer.from("\0.nv_fatbin\0.shstrtab\0");
  const header = (name: number, offset: number, size: number): Buffer => {
    const bytes = Buffer.alloc(64);
    bytes.writeUInt32LE(name, 0);
    bytes.writeBigUInt64LE(BigInt(offset), 24);
    bytes.writeBigUInt64LE(BigInt(size), 32);
    return bytes;
  };
  const elf = Buffer.alloc(64);
  elf.write("\x7fELF", "latin1");
  elf.writeBigUInt64LE(BigInt(64 + section.length + names.length), 0x28);
  [64, 2, 1].forEach((value, index) => elf.writeUInt16LE(value, 0x3a + 2 * index));
  const headers = [header(1, 64, section.length), header(12, 64 + section.length, names.length)];
  return Buffer.concat([elf, section, names, ...headers]);
}

/** As a driver reads them: each entry's architecture, 0 for PTX, and whether its content is what the compiler wrote. */
function entriesOf(library: Buffer, container: number): { readonly architecture: number; readonly isWhole: boolean }[] {
  const first = container + library.readUInt16LE(container + 6);
  const end = first + Number(library.readBigUInt64LE(container + 8));
  const entries = [];
  for (let place = first; place < end;) {
    const isPtx = library.readUInt16LE(place) === 1;
    const content = place + library.readUInt32LE(place + 4);
    const next = content + Number(library.readBigUInt64LE(place + 8));
    const expected = (isPtx ? "ptx!" : "code").repeat((next - content) / 4);
    const isWhole = library.toString("latin1", content, next) === expected;
    entries.push({ architecture: isPtx ? 0 : library.readUInt32LE(place + 28), isWhole });
    place = next;
  }
  return entries;
}

test("machine code of other GPUs is left out, and what stays is a container of its own", () => {
  const library = libraryFor(80, 90, 120);
  const before = Buffer.from(library);
  const containers = [64, 64 + 16 + 4 * 128 + 8];
  // 64 bytes of header with 64 of content.
  expect(keepGpuCode(library, 90)).toEqual({ keptBytes: 512, clearedBytes: 512 });
  expect(library.length).toBe(before.length);
  for (const container of containers) {
    expect(entriesOf(before, container).map(({ architecture }) => architecture)).toEqual([80, 90, 120, 0]);
    expect(entriesOf(library, container)).toEqual([
      { architecture: 90, isWhole: true },
      { architecture: 0, isWhole: true },
    ]);
    const left = library.subarray(container + 16 + 2 * 128, container + 16 + 4 * 128);
    expect(left.every((byte) => byte === 0)).toBe(true);
  }
});

test("a container for other GPUs alone stays as it is", () => {
  const library = Buffer.from(libraryFor(90, 120));
  const second = 64 + 16 + 3 * 128 + 8;
  for (const entry of [0, 1, 2]) {
    library.writeUInt16LE(2, second + 16 + entry * 128);
    library.writeUInt32LE(120, second + 16 + entry * 128 + 28);
  }
  const before = Buffer.from(library.subarray(second));
  expect(keepGpuCode(library, 90)).toEqual({ keptBytes: 5 * 128, clearedBytes: 128 });
  expect(library.subarray(second)).toEqual(before);
});

test("a library without machine code for the GPU, or without the section, is refused", () => {
  expect(() => keepGpuCode(libraryFor(80, 120), 90)).toThrow("no machine code for architecture 90");
  const other = libraryFor(90);
  other.write("x", other.indexOf(".nv_fatbin"));
  expect(() => keepGpuCode(other, 90)).toThrow("no section .nv_fatbin");
});

test("parts are grouped for as few transfers as their sizes allow", () => {
  const parts = [26, 18, 26, 1, 26, 22].map((bytes, index) => ({ name: `${index}`, bytes }));
  expect(groupParts(parts, 26).map((group) => group.map(({ name }) => name))).toEqual([
    ["0"],
    ["2"],
    ["4"],
    ["5", "3"],
    ["1"],
  ]);
});

test("a command of a lease carries at most 64 MiB in eight files", () => {
  const small = ["SHA256SUMS", "ARCHIVES", "assemble.sh"].map((name) => ({ name, bytes: 0 }));
  const parts = Array.from({ length: 13 }, (_, index) => ({ name: `${index}`, bytes: LEASE_PART_MIB * 2 ** 20 }));
  const groups = groupParts([...small, ...parts], LEASE_TRANSFER_BYTES);
  expect(groups.length).toBe(4);
  for (const group of groups) expect(group.length).toBeLessThanOrEqual(8);
  expect(LEASE_TRANSFER_BYTES).toBeLessThan(64 * 2 ** 20);
});

test("the branch of a lease has the script and what it ignores, and leaves the tree as it is", async () => {
  const tree = join(folder.path, "tree");
  await mkdir(join(tree, "test/gpu"), { recursive: true });
  const git = (...args: readonly string[]) => execFileSync("git", args, { cwd: tree, encoding: "utf8" });
  git("init", "--quiet", "--initial-branch", "main");
  git("config", "user.name", "A developer");
  git("config", "user.email", "developer@example.com");
  await copyFile(join(repository, "test/gpu/lease.sh"), join(tree, "test/gpu/lease.sh"));
  await writeFile(join(tree, "large"), new Uint8Array(2 ** 20));
  git("add", ".");
  git("commit", "--quiet", "-m", "Add files");
  writeLeaseBranch(tree);
  // Again, from a tree that has changed.
  await writeFile(join(tree, "test/gpu/lease.sh"), "echo changed\n");
  writeLeaseBranch(tree);
  expect(git("ls-tree", "-r", "--name-only", leaseBranch).trim().split("\n")).toEqual([
    ".gitignore",
    "test/gpu/lease.sh",
  ]);
  expect(git("show", `${leaseBranch}:test/gpu/lease.sh`)).toBe("echo changed\n");
  expect(git("branch", "--show-current").trim()).toBe("main");
  git("checkout", "--quiet", "--force", leaseBranch);
  await mkdir(join(tree, "gpu-pack"));
  await writeFile(join(tree, "gpu-pack/part"), "");
  expect(git("status", "--porcelain")).toBe("");
  expect(await readdir(tree)).not.toContain("large");
});

test("both commands of a lease with parts end within eight minutes and forty seconds together", async () => {
  const script = await readFile(join(repository, "test/gpu/lease.sh"), "utf8");
  const bounds = ["answers", "figures"].map((command) =>
    Number(new RegExp(`^${command}\\(\\) \\{\n  begin (\\d+)$`, "m").exec(script)?.[1]),
  );
  // Of the 15 minutes, about one passes while the machine starts and receives the pack.
  expect(bounds.reduce((sum, seconds) => sum + seconds)).toBe(520);
});

/** In place of the experiments: it says with which arguments it ran, and that one part failed. */
const stubOfParts = `output=$(echo "$*" | sed 's/.*--output \\([^ ]*\\).*/\\1/')
echo "$*" >>"$output/ran"
sleep 0.$(( $1 % 3 ))
echo "{}" >"$output/$1-of-$$.json"
case "$*" in
  "2 "*) echo "[   0 s] FAIL  a sum: 3" ;;
esac
echo "$1: ended"
`;

test("a lease keeps what it receives, says what is missing, and reports all parts", async () => {
  const source = join(folder.path, "source/test/gpu");
  await mkdir(source, { recursive: true });
  await writeFile(join(source, "run.sh"), stubOfParts);
  await writePack();
  const tree = join(folder.path, "tree");
  await mkdir(join(tree, "test/gpu"), { recursive: true });
  await mkdir(join(tree, "gpu-pack"));
  await copyFile(join(repository, "test/gpu/lease.sh"), join(tree, "test/gpu/lease.sh"));
  const out = join(folder.path, "out");
  const kept = join(folder.path, "lease");
  // No time passes.
  const programs = join(folder.path, "programs");
  await mkdir(programs);
  await writeFile(join(programs, "date"), "#!/bin/sh\necho 1800000000\n", { mode: 0o755 });
  const env = { PATH: `${programs}:/usr/bin:/bin`, LEASE_FOLDER: kept, OUT: out, LEASE_DEVICE: "cpu" };
  const lease = (...args: readonly string[]) =>
    spawnSync("/bin/sh", [join(tree, "test/gpu/lease.sh"), ...args], { env, encoding: "utf8" });
  const carry = async (name: string): Promise<void> => {
    await rm(join(tree, "gpu-pack"), { recursive: true });
    await mkdir(join(tree, "gpu-pack"));
    await copyFile(join(pack, name), join(tree, "gpu-pack", name));
  };
  const names = (await readdir(pack)).sort();
  for (const name of names.slice(0, -1)) {
    await carry(name);
    expect(lease("receive")).toMatchObject({ status: 0, stdout: expect.stringContaining("Not here yet:") });
  }
  expect(lease("answers")).toMatchObject({ status: 1, stderr: expect.stringContaining("A lease begins with") });
  await carry(names.at(-1)!);

  const answers = lease("answers");
  // A part failed.
  expect(answers).toMatchObject({ status: 1, stderr: "" });
  expect(answers.stdout).toContain("FAIL  a sum: 3");
  expect(await readFile(join(kept, "fovea/text"), "utf8")).toBe("a text\n");
  const reports = () => execFileSync("tar", ["-xzOf", join(out, "reports.tar.gz"), "./ran"], { encoding: "utf8" });
  const ran = reports()
    .trim()
    .split("\n")
    .map((line) => line.split(" --device")[0]);
  expect(ran[0]).toBe("1");
  const shardsOf = (part: string, count: number): string[] =>
    Array.from({ length: count }, (_, index) => `${part} --shard ${index + 1}/${count}`);
  expect(new Set(ran.slice(1))).toEqual(
    new Set(["12", ...shardsOf("13", 5), "16", "2", ...shardsOf("3", 4), "6", "9 4"]),
  );
  const list = execFileSync("tar", ["-tzf", join(out, "reports.tar.gz")], { encoding: "utf8" }).split("\n");
  // None is missing because the archive was written before a part ended.
  expect(list.filter((name) => name.endsWith(".json"))).toHaveLength(15);
  expect(list.filter((name) => name.endsWith(".log"))).toHaveLength(15);

  expect(lease("figures")).toMatchObject({ status: 0, stderr: "" });
  expect(reports()).toMatch(/^14 --device cpu --seconds 360 --output .*reports --folder .*built\/14\n5-8b --device/);
  expect(reports()).toContain("5-8b --dtype int4 --device cpu");
  expect(lease("parts", "7", "--dtype", "int4").stdout).toContain("7: ended");
  expect(reports()).toContain("7 --dtype int4 --device cpu --seconds ");
  expect(lease("tests", "goldens")).toMatchObject({ status: 0, stderr: "" });
  expect(reports()).toMatch(/^tests --output .*reports --seconds 300 goldens\n$/);
  expect(lease("unknown")).toMatchObject({ status: 2, stderr: expect.stringContaining("lease.sh receive") });

  // Sources that were packed again replace all that was there.
  await rm(join(folder.path, "source/link"));
  await writeFile(join(folder.path, "source/new"), "new\n");
  await rm(pack, { recursive: true });
  await mkdir(pack);
  await writePack();
  for (const name of await readdir(pack)) {
    await carry(name);
    lease("receive");
  }
  await writeFile(join(kept, "fovea/left"), "");
  lease("parts", "7");
  expect(await readdir(join(kept, "fovea"))).toContain("new");
  expect(await readdir(join(kept, "fovea"))).not.toContain("left");
});
