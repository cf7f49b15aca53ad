import { execFile } from "node:child_process";
import { mkdir, realpath, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";

import { createTemporaryFolder } from "../../../support/temporary-folder.ts";
import type { TemporaryFolder } from "../../../support/temporary-folder.ts";

const child = fileURLToPath(new URL("./loading-child.ts", import.meta.url));

/** With types: nothing is built. */
const processorSource = `
  import { LogitsProcessor, type Logits } from "fovea";
  export class TargetToken extends LogitsProcessor {
    isArgmaxInvariant(): boolean { return false; }
    updateState(): void {}
    apply(logits: Logits): Logits { return logits; }
  }
  export const grouped = { TargetToken };`;
const plainSource = processorSource.replaceAll(/: (boolean|void|Logits)\b|, type Logits/g, "");

let temporary: TemporaryFolder;
let folder: string;

async function write(path: string, content: string | object): Promise<void> {
  const file = join(folder, path);
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, typeof content === "string" ? content : JSON.stringify(content));
}

beforeAll(async () => {
  temporary = await createTemporaryFolder();
  folder = await realpath(temporary.path);
  await write("steering/target_token.ts", processorSource);
  await write("plain.js", plainSource);
  await write("throwing.mjs", 'throw new Error("no licence file");');
  await write("common/package.json", { type: "commonjs" });
  await write("common/steering.js", plainSource);
  await write("node_modules/@acme/steering/processors.ts", processorSource);
  await write("node_modules/@acme/steering/package.json", {
    name: "@acme/steering",
    type: "module",
    fovea: {
      logitsProcessors: { target: "./processors.ts:TargetToken", again: "./processors.ts:grouped.TargetToken" },
    },
  });
  await write("node_modules/strict/steer.mjs", plainSource);
  await write("node_modules/strict/package.json", {
    name: "strict",
    exports: { "./steer": { import: "./steer.mjs" } },
  });
  await write("node_modules/unrelated/package.json", "{ not JSON");
});

afterAll(() => temporary[Symbol.asyncDispose]());

async function load(names: readonly string[], cwd = folder): Promise<string[]> {
  const { stdout } = await promisify(execFile)(process.execPath, [child, ...names], { cwd });
  return JSON.parse(stdout) as string[];
}

function urlOf(path: string): string {
  return pathToFileURL(join(folder, path)).href;
}

test("a dotted path, path, URL and package lead to the same class, in JavaScript and TypeScript", async () => {
  const names: [string, string][] = [
    ["steering.target_token:TargetToken", `${urlOf("steering/target_token.ts")}:TargetToken`],
    ["steering.target_token:grouped.TargetToken", `${urlOf("steering/target_token.ts")}:grouped.TargetToken`],
    ["./steering/target_token:TargetToken", `${urlOf("steering/target_token.ts")}:TargetToken`],
    [`${join(folder, "plain.js")}:TargetToken`, `${urlOf("plain.js")}:TargetToken`],
    [`${urlOf("plain.js")}:TargetToken`, `${urlOf("plain.js")}:TargetToken`],
    ["plain:TargetToken", `${urlOf("plain.js")}:TargetToken`],
    ["@acme/steering/processors:TargetToken", `${urlOf("node_modules/@acme/steering/processors.ts")}:TargetToken`],
    ["strict/steer:TargetToken", `${urlOf("node_modules/strict/steer.mjs")}:TargetToken`],
  ];
  const loaded = await load(names.map(([name]) => name));
  expect(loaded).toEqual(names.map(([name, className]) => `${name} is ${className}`));
});

test("a module in a folder whose name has a colon is found again under its URL", async () => {
  await write("a:b/steer.js", plainSource);
  const className = `${urlOf("a:b/steer.js")}:TargetToken`;
  expect(await load(["steer:TargetToken"], join(folder, "a:b"))).toEqual([`steer:TargetToken is ${className}`]);
  expect(await load([className])).toEqual([`${className} is ${className}`]);
});

test("a folder does not hide the module of the same name", async () => {
  await write("beside.ts", processorSource);
  await write("beside/other.ts", processorSource);
  const [found] = await load(["./beside:TargetToken"]);
  expect(found).toBe(`./beside:TargetToken is ${urlOf("beside.ts")}:TargetToken`);
});

test("each failure of a name has its own message", async () => {
  const position = (name: string) => `Logits processor 1 of 1, ${name}, could not be loaded:`;
  const expected: [string, string][] = [
    ["strict/other:A", `tried the package strict/other from ${folder} (Package subpath './other' is not defined`],
    ["no.such:A", `tried ${join(folder, "no/such.ts")}, `],
    ["steering/target_token:A", "If it is a file, write steering.target_token or ./steering/target_token."],
    ["plain.js:A", "If it is a file, write plain or ./plain.js."],
    ["a-b/c.d/e.ts:A", "If it is a file, write ./a-b/c.d/e.ts."],
    ["throwing:A", `its module ${urlOf("throwing.mjs")} threw when it was imported: no licence file`],
    ["common.steering:A", 'Does the package.json beside it lack "type": "module"?'],
  ];
  const messages = await load(expected.map(([name]) => name));
  for (const [index, [name, reason]] of expected.entries()) {
    expect(messages[index]).toContain(position(name));
    expect(messages[index]).toContain(reason);
  }
});

test("announced processors of installed packages load in alphabetical order, under their announced names", async () => {
  const url = urlOf("node_modules/@acme/steering/processors.ts");
  expect(await load(["installed"])).toEqual([
    `target of @acme/steering is ${url}:TargetToken; again of @acme/steering is ${url}:grouped.TargetToken`,
  ]);
});

test.for<[unknown, string]>([
  [{ target: "../outside.js" }, '.target must be "./file:Class"; got another string.'],
  [{ target: 5 }, '.target must be "./file:Class".'],
  ["./steering.js:TargetToken", ' must be an object such as {"name": "./file:Class"}.'],
])("the invalid announcement %j is rejected with the package", async ([logitsProcessors, problem]) => {
  await write("project/node_modules/odd/package.json", { name: "odd", fovea: { logitsProcessors } });
  const [message] = await load(["installed"], join(folder, "project"));
  expect(message).toBe(`package.json of odd: fovea.logitsProcessors${problem}`);
});
