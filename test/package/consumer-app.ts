/** A user's folder, outside the repository, with the packed package installed. */
import { execFile } from "node:child_process";
import { cp, readFile, realpath, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { npmEnvironment } from "../support/programs/npm-environment.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

export const repository = fileURLToPath(new URL("../../", import.meta.url));

/** The output of `npm pack --json` about the package. */
export interface PackedPackage {
  readonly filename: string;
  /** Bytes of the archive. */
  readonly size: number;
  readonly unpackedSize: number;
  readonly files: readonly { readonly path: string }[];
}

export interface CommandResult {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface ConsumerApp extends AsyncDisposable {
  readonly path: string;
  readonly packed: PackedPackage;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Runs a program of PATH in the folder; a failure is a result too. */
  run(command: string, args: readonly string[], environment?: Readonly<Record<string, string>>): Promise<CommandResult>;
}

/**
 * Packs the repository and installs the archive together with the peers that the programs of test/package/consumer,
 * examples/embed and docs/embedding.md import. These programs are copied into the folder. The install script of
 * onnxruntime-node fails, as it does for users who cannot reach the host from which it downloads.
 */
export async function createConsumerApp(): Promise<ConsumerApp> {
  const folder = await createTemporaryFolder();
  const path = await realpath(folder.path);
  // The Node of the tests comes first, as for users with a new enough Node.
  const npm = npmEnvironment();
  const environment = { ...npm, PATH: `${dirname(process.execPath)}:${npm.PATH}`, XDG_DATA_HOME: join(path, ".data") };
  const packed = await pack(path, environment);
  const manifest = { private: true, type: "module", allowScripts: { "onnxruntime-node": true } };
  await writeFile(join(path, "package.json"), JSON.stringify(manifest));
  await cp(join(repository, "test/package/consumer"), path, { recursive: true });
  await cp(join(repository, "examples/embed"), path, { recursive: true });
  for (const { name, text } of await readProgramsOfDocs()) await writeFile(join(path, name), text);

  const run: ConsumerApp["run"] = async (command, args, added = {}) => {
    const options = { cwd: path, env: { ...environment, ...added }, maxBuffer: 64 * 1024 ** 2 };
    try {
      return { exitCode: 0, ...(await promisify(execFile)(command, args, options)) };
    } catch (error) {
      const { code, stdout, stderr } = error as { code: number; stdout: string; stderr: string };
      if (typeof code !== "number") throw error;
      return { exitCode: code, stdout, stderr };
    }
  };
  const installed = await run(
    "npm",
    ["install", "--no-audit", "--no-fund", `./${packed.filename}`, ...(await peers())],
    {
      ONNXRUNTIME_NODE_INSTALL: "what-no-host-has",
    },
  );
  if (installed.exitCode !== 0) throw new Error(`npm install failed:\n${installed.stdout}${installed.stderr}`);
  return { path, packed, environment, run, [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose]() };
}

/** Code blocks of docs/embedding.md that have a file name. */
async function readProgramsOfDocs(): Promise<{ readonly name: string; readonly text: string }[]> {
  const page = await readFile(join(repository, "docs/embedding.md"), "utf8");
  return [...page.matchAll(/^```\w+ (?<name>\S+)\n(?<text>[^]*?)\n```$/gm)].map(
    ({ groups }) => groups as { readonly name: string; readonly text: string },
  );
}

async function pack(destination: string, env: ConsumerApp["environment"]): Promise<PackedPackage> {
  const { stdout } = await promisify(execFile)("npm", ["pack", "--json", "--pack-destination", destination], {
    cwd: repository,
    env,
    maxBuffer: 64 * 1024 ** 2,
  });
  // Older versions of npm print the build's output first, and an array.
  const parsed = JSON.parse(stdout.slice(stdout.search(/^[[{]/m))) as PackedPackage[] | Record<string, PackedPackage>;
  return Object.values(parsed)[0]!;
}

/** In the versions with which the repository is tested, which are in npm's cache. */
async function peers(): Promise<string[]> {
  const { devDependencies } = JSON.parse(await readFile(join(repository, "package.json"), "utf8")) as {
    readonly devDependencies: Readonly<Record<string, string>>;
  };
  return ["@ai-sdk/provider", "@types/node", "ai", "fast-check"].map((name) => `${name}@${devDependencies[name]}`);
}
