/** Modal's program, against the signatures of modal 1.6.4 (App.function, web_server, concurrent), read on 2026-11-22. */
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { z } from "zod";

import type { RenderedFile } from "../../infra/deployment-target.ts";
import { modal } from "../../infra/modal.ts";
import { testDeploymentTarget } from "../contracts/deployment-target.ts";
import type { RenderedDeployment } from "../contracts/deployment-target.ts";
import { renderWith } from "../support/deployments/render-with.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";

const literal = z.strictObject({
  name: z.string(),
  image: z.string(),
  environment: z.record(z.string(), z.string()),
  secrets: z.array(z.strictObject({ name: z.string(), variable: z.string() })),
  port: z.int(),
  readiness: z.string(),
  /** Arguments of App.function. */
  function: z.strictObject({
    gpu: z.string().optional(),
    cpu: z.number(),
    memory: z.int(),
    min_containers: z.int(),
    max_containers: z.int(),
    scaledown_window: z.int().min(2).max(3600),
    timeout: z.int(),
    startup_timeout: z.int(),
  }),
  concurrency: z.int(),
});

const description = {
  name: "pictures",
  image: "docker.io/example/fovea:1.2.3",
  device: { kind: "cuda", gpu: "h100" },
  resources: { cpu: 4, memoryGiB: 16 },
  replicas: { min: 0, max: 2 },
};

const render = renderWith(modal, description);

testDeploymentTarget({ target: modal, read, takesCpu: true, maxGraceSeconds: 25 });

function literalOf([file]: readonly RenderedFile[]) {
  return literal.parse(JSON.parse(/^DEPLOYMENT = (\{.*?^\})$/ms.exec(file!.text)![1]!));
}

function read(files: readonly RenderedFile[]): RenderedDeployment {
  const { image, port, environment, secrets, readiness, function: resources, concurrency } = literalOf(files);
  return {
    image,
    port,
    environment,
    secrets: Object.fromEntries(secrets.map(({ name, variable }) => [variable, name])),
    readinessPath: readiness,
    livenessPath: null,
    secondsToEnd: 30,
    numGpus: resources.gpu === undefined ? 0 : 1,
    replicas: { min: resources.min_containers, max: resources.max_containers },
    concurrency,
  };
}

test("the program is Python, and its literal is the one that was rendered", async () => {
  const [file] = render({ secrets: { API_KEY: "key" } });
  await using folder = await createTemporaryFolder();
  await writeFile(join(folder.path, "app.py"), file!.text);
  const script = `
import ast, json, sys
tree = ast.parse(open(sys.argv[1]).read())
value = next(n.value for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "DEPLOYMENT")
names = [d.func.attr for n in tree.body if isinstance(n, ast.FunctionDef) for d in n.decorator_list]
print(json.dumps([ast.literal_eval(value), names]))`;
  const { stdout } = await promisify(execFile)("python3", ["-c", script, join(folder.path, "app.py")]);
  const [value, decorators] = JSON.parse(stdout) as [object, string[]];
  expect(value).toEqual(literalOf([file!]));
  expect(decorators).toEqual(["function", "concurrent", "web_server"]);
});

test.for<[object, RegExp]>([
  [{ device: { kind: "cuda", gpu: "rtx-4090" } }, /^device\.gpu: Modal has .*h200, not rtx-4090\.$/],
  [{ secrets: { API_KEY: "it's" } }, /^secrets\.API_KEY: expected the name of a secret/],
])("unsupported fields of Modal are rejected by path: %j", ([changes, expected]) => {
  expect(() => render(changes)).toThrow(expected);
});
