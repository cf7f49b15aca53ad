import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { loadConfig, settingDescriptions } from "../../functions/settings/config.ts";
import { containerCacheFolder, PORT } from "../../infra/deployment-target.ts";
import {
  copyOf,
  environmentOf,
  execFormOf,
  instructionsOf,
  readContext,
  readStages,
  repository,
  textOf,
  withKeyword,
} from "./container-file.ts";

const stages = await readStages();

test("the default target of the image is CUDA", () => {
  expect([...stages.keys()].at(-1)).toBe("cuda");
});

test("every external source has a pinned version, and stages are used after they are built", () => {
  const versioned = /^[\w./-]+(:(?!latest$)[\w.-]*\d[\w.-]*|@sha256:[0-9a-f]{64})$/;
  const known = new Set<string | null>([null]);
  for (const { name, from, instructions } of stages.values()) {
    expect(known.has(from) || versioned.test(from)).toBe(true);
    for (const { stage } of withKeyword(instructions, "COPY").map(copyOf)) expect(known).toContain(stage);
    expect(withKeyword(instructions, "ADD")).toEqual([]);
    known.add(name);
  }
});

describe.for(["cpu", "cuda-slim", "cuda"])("the image %s", (target) => {
  const instructions = instructionsOf(stages, target);
  const environment = environmentOf(instructions);

  test("runs as a numeric user without privileges", () => {
    expect(textOf(withKeyword(instructions, "USER").at(-1)!)).toMatch(/^[1-9]\d*:[1-9]\d*$/);
  });

  test("starts the service without a shell in between, so signals reach it", () => {
    const [command, script] = execFormOf(instructions, "ENTRYPOINT");
    expect({ command, script }).toEqual({ command: "node", script: "/app/functions/cli/main.js" });
    expect(withKeyword(instructions, "CMD")).toEqual([]);
    expect(withKeyword(instructions, "STOPSIGNAL").map(textOf)).toEqual(["SIGTERM"]);
  });

  test("listens on the port that it exposes and that deployments expect", () => {
    expect(environment.PORT).toBe(String(PORT));
    expect(withKeyword(instructions, "EXPOSE").map(textOf)).toEqual([String(PORT)]);
  });

  test("sets only settings of the service and variables of the platform, and no secret", () => {
    const ofDriver = ["LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES"];
    const ofOthers = ["NODE_COMPILE_CACHE", "MALLOC_ARENA_MAX", ...(target === "cpu" ? [] : ofDriver)];
    const known = settingDescriptions.filter(({ isSecret }) => !isSecret).map(({ name }) => name);
    expect([...known, ...ofOthers]).toEqual(expect.arrayContaining(Object.keys(environment)));
    expect(loadConfig(environment)).toMatchObject({
      engine: { device: target === "cpu" ? "cpu" : "cuda", cacheFolder: containerCacheFolder },
      servedModelNames: ["fovea-shapes"],
    });
  });
});

test("layers go from those that change least to those that change most", () => {
  /** By the sources of the COPY lines: what changes with NVIDIA's releases, ONNX Runtime's, Node's, FFmpeg's, packages, Fovea. */
  const order = [
    "/cuda/cudnn",
    "/cuda/lib",
    "/cuda/provider",
    "/runtime/node",
    "/video/node_modules",
    "/native/node_modules",
    "/app/node_modules",
    "/sbom",
    "container/cuda-requirements.txt",
    "/app",
  ];
  for (const target of ["cpu", "cuda-slim", "cuda"]) {
    const sources = withKeyword(instructionsOf(stages, target), "COPY").flatMap((line) => copyOf(line).sources);
    const expected = order.filter(
      (source) =>
        target === "cuda" || (source !== "/cuda/cudnn" && (target === "cuda-slim" || !source.includes("cuda"))),
    );
    expect(sources, target).toEqual(expected);
  }
});

test("the two CUDA images differ only in cuDNN, and are only for x64", () => {
  const linesOf = (target: string) =>
    instructionsOf(stages, target).map(
      (line) => `${line.getKeyword()} ${line.getKeyword() === "COPY" ? copyOf(line).stage : ""} ${textOf(line)}`,
    );
  const added = new Set(linesOf("cuda")).difference(new Set(linesOf("cuda-slim")));
  expect([...added]).toEqual(["COPY cuda-libraries /cuda/cudnn /usr/local/lib/cuda"]);
  const runs = withKeyword(stages.get("cuda-libraries")?.instructions ?? [], "RUN").map(textOf);
  expect(runs[0]).toContain('test "$(uname -m)" = x86_64');
});

test("the CUDA images find a driver that the platform mounts, where the experiments look for it too", async () => {
  const script = await readFile(join(repository, "test/gpu/run.sh"), "utf8");
  const folders = /^add (\/usr\/local\/nvidia\/\S+) (\/usr\/local\/nvidia\/\S+)$/m.exec(script)!.slice(1);
  for (const target of ["cuda-slim", "cuda"]) {
    expect(environmentOf(instructionsOf(stages, target)).LD_LIBRARY_PATH, target).toBe(folders.join(":"));
  }
});

test("every native package of production is there for x64 and for arm64", async () => {
  interface LockedPackage {
    readonly dev?: boolean;
    readonly devOptional?: boolean;
    readonly os?: readonly string[];
    readonly cpu?: readonly string[];
    readonly libc?: readonly string[];
  }
  const { packages } = JSON.parse(await readFile(join(repository, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, LockedPackage>>;
  };
  const forLinux = (cpu: string): string[] =>
    Object.entries(packages)
      .filter(([, { dev, devOptional, os, cpu: cpus, libc }]) => {
        const isNeeded = dev !== true && devOptional !== true && libc?.includes("musl") !== true;
        return isNeeded && os?.includes("linux") === true && cpus?.includes(cpu) === true;
      })
      .map(([path]) => path.replaceAll(cpu, "CPU"));
  const x64 = forLinux("x64");
  expect(x64.length).toBeGreaterThan(3);
  expect(forLinux("arm64")).toEqual(expect.arrayContaining(x64));
});

test("every copied file exists, and every file in the build context is needed", async () => {
  const { included, excluded } = await readContext();
  expect([...included, ...excluded].filter((path) => !existsSync(join(repository, path)))).toEqual([]);
  const copied = [...stages.values()]
    .flatMap(({ instructions }) => withKeyword(instructions, "COPY").map(copyOf))
    .filter(({ stage }) => stage === null)
    .flatMap(({ sources }) => sources);
  for (const source of copied) expect([".", ...included]).toContain(source);
  expect(included.filter((path) => /test|docs|\.git$|node_modules|\.env/.test(path))).toEqual([]);
});

test("CUDA's files are fetched by hash, and the provider matches the ONNX Runtime in the lock file", async () => {
  const requirements = await readFile(join(repository, "container/cuda-requirements.txt"), "utf8");
  const entries = requirements.replaceAll("\\\n", "").match(/^[^#\n].*$/gm) ?? [];
  for (const entry of entries) expect(entry).toMatch(/^[a-z0-9-]+==[\d.]+ +--hash=sha256:[0-9a-f]{64}$/);
  const lock = JSON.parse(await readFile(join(repository, "package-lock.json"), "utf8")) as {
    readonly packages: Readonly<Record<string, { readonly version: string }>>;
  };
  expect(requirements).toContain(`onnxruntime-gpu==${lock.packages["node_modules/onnxruntime-node"]!.version} `);
  const fetching = withKeyword(stages.get("cuda-libraries")?.instructions ?? [], "RUN")
    .map(textOf)
    .join("\n");
  expect(fetching).toContain("--require-hashes");
});
