import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";

import { writePipelineExample } from "../support/checkpoints/pipeline-example.ts";
import { execFormOf, instructionsOf, readStages, repository } from "./container-file.ts";
import { buildImageFiles, imageUser } from "./image-files.ts";
import type { ImageFiles } from "./image-files.ts";
import { addLayers } from "./your-own-image.ts";

/** Time to download packages from the registry that are not on this machine yet. */
const INSTALL_MS = 600_000;

let folder: string;
let image: ImageFiles;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "fovea-image-"));
  await chmod(folder, 0o755);
  image = await buildImageFiles(folder);
  // As on a platform that mounts the image read-only.
  await changeMode("a-w");
}, INSTALL_MS);

afterAll(async () => {
  await changeMode("u+w");
  await rm(folder, { recursive: true, force: true });
});

async function changeMode(mode: string): Promise<void> {
  await once(spawn("chmod", ["-R", mode, join(image.root, "app")]), "exit");
}

/** Runs one of the image's exec forms as the image's user. */
async function startInImage(keyword: "ENTRYPOINT" | "HEALTHCHECK", environment: Readonly<Record<string, string>>) {
  const [command, script] = execFormOf(instructionsOf(await readStages(), "cpu"), keyword);
  const child = spawn(join(image.root, "usr/local/bin", command!), [join(image.root, script!)], {
    cwd: join(image.root, "app"),
    env: { ...image.environment, ...environment },
    stdio: ["ignore", "pipe", "pipe"],
    ...imageUser,
  });
  const exited = once(child, "close").then(([code]) => code as number | null);
  let stderr = "";
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  return { child, exited, stderr: () => stderr };
}

async function startService(environment: Readonly<Record<string, string>> = {}) {
  const service = await startInImage("ENTRYPOINT", { HOST: "127.0.0.1", PORT: "0", ...environment });
  let port = "";
  let ready: Readonly<Record<string, unknown>> = {};
  for await (const line of createInterface({ input: service.child.stdout })) {
    const entry = JSON.parse(line) as { readonly message: string; readonly port?: number };
    if (entry.message === "Listening.") port = String(entry.port);
    if (entry.message === "Ready.") {
      ready = entry;
      break;
    }
  }
  service.child.stdout.resume();
  return { ...service, ready, port, baseUrl: `http://127.0.0.1:${port}` };
}

test("the image serves under a user who may change no file, and exits with 0 after SIGTERM", async () => {
  const { child, exited, stderr, port, baseUrl } = await startService();
  expect(stderr()).toBe("");
  expect((await fetch(`${baseUrl}/health`)).status).toBe(200);
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ messages: [{ role: "user", content: "How many shapes are there?" }], max_tokens: 4 }),
  });
  expect(response.status).toBe(200);
  expect(await response.json()).toMatchObject({ model: "fovea-shapes", choices: [{ message: { role: "assistant" } }] });

  expect(await (await startInImage("HEALTHCHECK", { PORT: port })).exited).toBe(0);
  child.kill("SIGTERM");
  expect(await exited).toBe(0);
  const unhealthy = await startInImage("HEALTHCHECK", { PORT: port });
  expect(await unhealthy.exited).toBe(1);
  expect(unhealthy.stderr()).toMatch(/\/livez: connect ECONNREFUSED/);
});

test("a start finds every module compiled and without types in the compile cache", async () => {
  const { child, exited, stderr } = await startService({ NODE_DEBUG_NATIVE: "COMPILE_CACHE" });
  child.kill("SIGTERM");
  expect(await exited).toBe(0);
  // Lines of several threads are interleaved, but these words of each are intact.
  expect(stderr().match(/reading cache from /g)?.length).toBeGreaterThan(300);
  expect(stderr()).not.toContain("writing cache for ");
});

test("an image of one's own brings a model, a pipeline and a logits processor", async () => {
  const page = await readFile(join(repository, "docs/your-own-image.md"), "utf8");
  const context = join(folder, "context");
  await mkdir(context, { mode: 0o755 });
  await writePipelineExample(context);
  const [preparation = "", containerfile = ""] = ["sh", "Dockerfile Containerfile"].map(
    (kind) => new RegExp(`^\`\`\`${kind}\\n([^]*?)\\n\`\`\`$`, "m").exec(page)?.[1],
  );
  await promisify(execFile)("sh", ["-ec", preparation], { cwd: context, env: { ...process.env, FOVEA: repository } });
  const settings = await addLayers(containerfile, context, image);

  const { ready, child, exited, baseUrl } = await startService(settings);
  expect(ready).toMatchObject({
    models: ["llama"],
    pipeline: "siglip-linear",
    acceptsImages: true,
    logitsProcessors: ["processors.dry:Dry"],
  });
  const picture = await readFile(join(repository, "models/fovea-shapes/examples/scene.png"), "base64");
  const response = await fetch(`${baseUrl}/v1/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    // The random model draws its end token now and then.
    body: JSON.stringify({
      prompt: `This is <img src="data:image/png;base64,${picture}">, a`,
      max_tokens: 4,
      ignore_eos: true,
    }),
  });
  expect(response.status).toBe(200);
  expect(((await response.json()) as { readonly usage: object }).usage).toMatchObject({ completion_tokens: 4 });
  child.kill("SIGTERM");
  expect(await exited).toBe(0);
});

test("the image lists its contents: every package of production, and no package of the tests", async () => {
  const path = join(image.root, "usr/local/share/sbom/npm.cdx.json");
  const { bomFormat, components } = JSON.parse(await readFile(path, "utf8")) as {
    readonly bomFormat: string;
    readonly components: readonly { readonly name: string; readonly version: string; readonly purl: string }[];
  };
  expect(bomFormat).toBe("CycloneDX");
  const { packages } = JSON.parse(await readFile(join(repository, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, { readonly version: string; readonly dev?: boolean }>>;
  };
  const listed = new Map(components.map(({ name, version }) => [name, version]));
  for (const name of ["hono", "sharp", "koffi", "onnxruntime-node"]) {
    expect(listed.get(name)).toBe(packages[`node_modules/${name}`]?.version);
  }
  for (const name of ["vitest", "typescript", "openai"]) expect(listed.has(name)).toBe(false);
  for (const { purl } of components) expect(purl).toMatch(/^pkg:npm\//);
});

test("a missing model is reported by the service under the image's user and folders", async () => {
  const { child, exited } = await startInImage("ENTRYPOINT", { PORT: "0", MODEL: "/nowhere" });
  child.stdout.resume();
  expect(await exited).toBe(1);
});
