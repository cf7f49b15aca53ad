/** .github/workflows/image.yml: the images that are built for a version. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parse } from "yaml";

import { readStages, repository } from "./container-file.ts";

interface Step {
  readonly uses: string;
  readonly with?: Readonly<Record<string, unknown>>;
}

interface Workflow {
  readonly jobs: {
    readonly image: {
      readonly strategy: {
        readonly matrix: { readonly include: readonly { readonly target: string; readonly platforms: string }[] };
      };
      readonly permissions: Readonly<Record<string, string>>;
      readonly steps: readonly Step[];
    };
  };
}

const text = await readFile(join(repository, ".github/workflows/image.yml"), "utf8");
const { image } = (parse(text) as Workflow).jobs;

test("every image is built: for the CPU on x64 and arm64, for CUDA on x64", async () => {
  const built = image.strategy.matrix.include.map(({ target, platforms }) => [target, platforms]);
  expect(Object.fromEntries(built)).toEqual({
    cpu: "linux/amd64,linux/arm64",
    "cuda-slim": "linux/amd64",
    cuda: "linux/amd64",
  });
  const stages = await readStages();
  for (const [target] of built) expect(stages.has(target ?? "")).toBe(true);
});

test("each has a list of its contents and a signed statement of how it was built", () => {
  const build = image.steps.find(({ uses }) => uses.startsWith("docker/build-push-action@"));
  expect(build?.with).toMatchObject({ file: "container/Containerfile", sbom: true, provenance: "mode=max" });
  expect(image.steps.map(({ uses }) => uses.split("@")[0])).toContain("actions/attest-build-provenance");
  expect(image.permissions).toMatchObject({ "id-token": "write", attestations: "write" });
});
