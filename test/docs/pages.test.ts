/** Every page: links lead somewhere, code blocks parse, and the commands, scripts and settings that pages name exist. */
import { execFile } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { stripTypeScriptTypes } from "node:module";
import { dirname, join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { parseAllDocuments } from "yaml";

import { settingDescriptions } from "../../functions/settings/config.ts";
import packageJson from "../../package.json" with { type: "json" };

const repository = fileURLToPath(new URL("../..", import.meta.url));
const pages = globSync(["*.md", "docs/*.md", "infra/*.md", "models/*/README.md", "examples/**/*.md"], {
  cwd: repository,
});
const texts = new Map(pages.map((page) => [page, readFileSync(join(repository, page), "utf8")]));

interface CodeBlock {
  readonly page: string;
  readonly line: number;
  readonly language: string;
  readonly code: string;
}

const blocks = [...texts].flatMap(([page, text]) =>
  [...text.matchAll(/^( *)```(\w*)[^\n]*\n([^]*?)\n\1```$/gm)].map(
    ({ index, 1: indentation, 2: language, 3: code }): CodeBlock => ({
      page,
      line: text.slice(0, index).split("\n").length,
      language: language!,
      code: code!.replaceAll(new RegExp(`^${indentation}`, "gm"), ""),
    }),
  ),
);
const blocksOf = (...languages: string[]): CodeBlock[] => blocks.filter(({ language }) => languages.includes(language));

/** The anchors of a page's headings, as GitHub writes them. */
function anchorsOf(page: string): string[] {
  const headings = texts
    .get(page)!
    .replaceAll(/^ *```[^]*?^ *```$/gm, "")
    .matchAll(/^#+ (.*)$/gm);
  return [...headings].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

const links = [...texts].flatMap(([page, text]) =>
  [...text.replaceAll(/^ *```[^]*?^ *```$/gm, "").matchAll(/\]\((?!https?:)([^)\s]+)\)/g)].map(([, target]) => ({
    page,
    target: target!,
  })),
);

test("the pages have links and blocks of each language", () => {
  expect(pages).toContain("README.md");
  expect(links.length).toBeGreaterThan(100);
  for (const language of ["sh", "json", "ts", "js", "yaml"]) expect(blocksOf(language)).not.toHaveLength(0);
});

test("no page has lines that a merge left behind", () => {
  for (const [page, text] of texts) expect(text.match(/^(?:<{7}|={7}|>{7}|\|{7})(?: |$)/m), page).toBeNull();
});

test("the index of docs/ lists every page", () => {
  const listed = links.filter(({ page }) => page === "docs/README.md").map(({ target }) => `docs/${target}`);
  const inFolder = pages.filter((page) => page.startsWith("docs/") && page !== "docs/README.md");
  expect(listed.filter((target) => inFolder.includes(target)).toSorted()).toEqual(inFolder.toSorted());
});

test.for(links)("$page: $target leads to a file and a heading", ({ page, target }) => {
  const [path = "", anchor] = target.split("#");
  const file = path === "" ? page : normalize(join(dirname(page), path));
  expect(globSync(file, { cwd: repository })).not.toHaveLength(0);
  expect(anchor === undefined ? [anchor] : anchorsOf(file)).toContain(anchor);
});

test.for(blocksOf("json"))("$page:$line is JSON", ({ code }) => {
  // "…" stands for what is left out: a part of a string, members of an object, or a value.
  const whole = code.replaceAll(/,\s*…(?=\s*[}\]])/g, "").replaceAll(/(?<=[[:]\s*)…(?=\s*[\],}])/g, "null");
  expect(() => JSON.parse(whole) as unknown).not.toThrow();
});

test.for(blocksOf("yaml"))("$page:$line is YAML", ({ code }) => {
  expect(parseAllDocuments(code).flatMap(({ errors }) => errors)).toEqual([]);
});

test.for(blocksOf("ts", "js").filter(({ code }) => code.startsWith("import ")))(
  "$page:$line is a module",
  async ({ code }) => {
    const javaScript = stripTypeScriptTypes(code);
    // --check with standard input parses a module without running it.
    const checked = promisify(execFile)(process.execPath, ["--input-type=module", "--check"]);
    checked.child.stdin!.end(javaScript);
    await expect(checked).resolves.toBeDefined();
  },
);

test.for(blocksOf("sh"))("$page:$line is shell", async ({ code }) => {
  const checked = promisify(execFile)("bash", ["-n"]);
  // Words in capitals in angle brackets stand for values of the reader.
  checked.child.stdin!.end(code.replaceAll(/<[a-z ]+>/g, "value"));
  await expect(checked).resolves.toBeDefined();
});

const commands = ["serve", "worker", "check", "batch", "render"];

test.for([...texts])("%s names scripts and commands that exist", ([, text]) => {
  const scripts = [...text.matchAll(/\bnpm run (?:-s )?([a-z][\w:-]*)/g)].map(([, script]) => script);
  expect(Object.keys(packageJson.scripts)).toEqual(expect.arrayContaining([...new Set(scripts)]));
  const run = text.matchAll(/(?:\bnpx fovea|`fovea|\bnpm start(?: -s)?(?: --prefix \S+)? --) ([a-z]+)/g);
  expect(commands).toEqual(expect.arrayContaining([...new Set([...run].map(([, command]) => command))]));
});

/** Variables that are not settings, by the program that reads them. */
const otherVariables = new Set([
  "ONNXRUNTIME_NODE_INSTALL",
  "XDG_CACHE_HOME",
  "XDG_DATA_HOME",
  "LD_LIBRARY_PATH",
  "MALLOC_ARENA_MAX",
  "GLIBC_TUNABLES",
  "CUDA_VISIBLE_DEVICES",
  "ORT_FORCE_DETERMINISTIC_MOE",
  "GOOGLE_APPLICATION_CREDENTIALS",
  "BASE_IMAGE",
  "FOVEA_TEST_CACHE",
  "FOVEA_TEST_DEVICES",
  "FOVEA_ATTACK_SEED",
  "REDIS_SERVER",
  "MOTO_SERVER",
  "PYTHON_CLIENTS",
  "PLATFORM_SCHEMAS",
  "VULKAN_DRIVER",
  "RABBITMQ_SERVER",
  "NATS_SERVER",
  "PUBSUB_EMULATOR_HOST",
  "WEBGPU_ADAPTER",
  "LEASE_DEVICE",
  "LEASE_SECONDS",
  "ENDPOINT_ID",
  "RUNPOD_API_KEY",
  "PROJECT_ID",
  "ENVIRONMENT_ID",
  "IMG_BREAK",
  "IMG_END",
  "TOOL_CALLS",
  "IN_QUEUE",
  "TIMED_OUT",
  "LEASE_SECONDS",
  "UPPER_SNAKE_CASE",
]);

test.for([...texts])("%s names settings that exist", ([, text]) => {
  const settings = new Set(settingDescriptions.map(({ name }) => name));
  const names = [...text.matchAll(/\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b/g)].map(([name]) => name);
  expect(names.filter((name) => !settings.has(name) && !otherVariables.has(name))).toEqual([]);
});
