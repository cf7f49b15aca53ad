import { readFile, readdir } from "node:fs/promises";
import { expect, test } from "vitest";

import { ConfigError } from "../../functions/settings/setting.ts";
import { parseDeployment } from "../../infra/deployment.ts";
import type { Deployment } from "../../infra/deployment.ts";

const description = {
  name: "pictures",
  image: "registry.example.com:5000/team/fovea:1.2.3",
  device: { kind: "cpu" },
  resources: { cpu: 2, memoryGiB: 4 },
  replicas: { min: 1, max: 2 },
};

function parse(changes: object = {}): Deployment {
  return parseDeployment(JSON.stringify({ ...description, ...changes }));
}

function problemsOf(changes: object): readonly string[] {
  try {
    parse(changes);
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
  return [];
}

test("omitted fields have defaults, most of them the service's", () => {
  expect(parse()).toMatchObject({
    concurrency: 32,
    environment: { BATCH_STORE: "none", DEVICE: "cpu" },
    secrets: {},
    s3Role: null,
    hosts: ["pictures"],
    timeouts: { requestSeconds: 300, startupSeconds: 600, shutdownGraceSeconds: null },
  });
});

test.for([
  ["1.10", "1.10"],
  ["007", "007"],
  ["12345678901234567890", "12345678901234567890"],
  ["1e3", "1e3"],
  ["True", "True"],
  ["*name", "2.50"],
] as const)("a setting has the text that is written in YAML: %s", ([source, expected]) => {
  const fields = `${JSON.stringify(description).slice(0, -1)}, environment: { OTEL_SERVICE_NAME: &name 2.50, SERVED_MODEL_NAME: ${source} } }`;
  expect(parseDeployment(fields).environment.SERVED_MODEL_NAME).toBe(expected);
});

test("numbers and booleans become strings that the service parses", () => {
  const environment = { MAX_NUM_SEQS: 8, ALLOW_HTTP_IMAGES: true };
  expect(parse({ environment }).environment).toMatchObject({ MAX_NUM_SEQS: "8", ALLOW_HTTP_IMAGES: "true" });
});

test.for<[object, string]>([
  [{ replicas: { min: 3, max: 2 } }, "replicas: expected min to be at most max."],
  [{ replica: {} }, "replica: there is no such field."],
  [{ replicas: undefined }, "replicas: it is missing; expected fields."],
  [{ replicas: { min: "a", max: 2 } }, 'replicas.min: expected a number, got "a".'],
  [{ replicas: { min: 0.5, max: 2 } }, "replicas.min: expected an integer, got 0.5."],
  [{ resources: { cpu: 0, memoryGiB: 4 } }, "resources.cpu: expected more than 0, got 0."],
  [{ resources: { cpu: 1, memoryGiB: 9000 } }, "resources.memoryGiB: expected at most 4096, got 9000."],
  [{ name: "a".repeat(41) }, `name: expected at most 40 characters, got "${"a".repeat(41)}".`],
  [{ s3Role: "" }, 's3Role: expected at least 1 character, got "".'],
  [{ worker: "yes" }, 'worker: expected true or false, got "yes".'],
  [{ device: { kind: "gpu" } }, 'device.kind: expected cpu, or cuda or webgpu with a gpu, got "gpu".'],
  [{ device: {} }, "device.kind: it is missing; expected cpu, or cuda or webgpu with a gpu."],
  [{ model: 7 }, "model: expected text, got 7."],
  [{ timeouts: { startup: 3 } }, "timeouts.startup: there is no such field."],
  [
    { image: "fovea:latest" },
    'image: expected an image with a digest, or a tag other than latest, got "fovea:latest".',
  ],
  [{ image: "fovea" }, 'image: expected an image with a digest, or a tag other than latest, got "fovea".'],
  [
    { image: "docker://user:hunter2@registry.example.com/fovea:1" },
    'image: expected an image with a digest, or a tag other than latest, got "docker://********@registry.example.com/fovea:1".',
  ],
  [
    { name: "My_Pictures" },
    'name: expected lower-case letters, digits and dashes, starting with a letter, got "My_Pictures".',
  ],
  [{ dtype: "int5" }, 'dtype: DTYPE is "int5": expected one of auto, float32, bfloat16, float16, int8, int4.'],
  [
    { model: "./models/x" },
    "model: expected org/name of the hub, s3://, gs:// or az://, or an absolute path of a folder in the image, got ./models/x.",
  ],
  [
    { environment: { MAX_NUM_SEQS: 0 } },
    'environment.MAX_NUM_SEQS: MAX_NUM_SEQS is "0": expected an integer from 1 to 4096 sequences.',
  ],
  [
    { environment: { MAX_NUM_SEQ: 4 } },
    "environment.MAX_NUM_SEQ: there is no such setting; did you mean MAX_NUM_SEQS?",
  ],
  [
    { environment: { SERVED_MODEL_NAME: null } },
    "environment.SERVED_MODEL_NAME: expected text, a number, true or false, got null.",
  ],
  [
    { prometheusUrl: "http://me:hunter2@prometheus:9090" },
    'prometheusUrl: a user or password is not allowed here, got "http://********@prometheus:9090".',
  ],
  [{ prometheusUrl: "prometheus" }, 'prometheusUrl: expected an http:// or https:// URL, got "prometheus".'],
  ...["https://a.example", "a.example:8000", "A.example", "a..example", "*", "a.*.example", "-a.example"].map(
    (host): [object, string] => [
      { hosts: [host] },
      `hosts.0: expected a host name in lower case without a scheme and a port, or *. and one, got "${host}".`,
    ],
  ),
  [{ environment: { NONSENSE: 4 } }, "environment.NONSENSE: there is no such setting."],
  [{ environment: { API_KEY: "hunter2" } }, "environment.API_KEY: it is secret; name a platform secret under secrets."],
  [
    { environment: { AWS_ENDPOINT_URL_S3: "http://user:hunter2@minio:9000" } },
    "environment.AWS_ENDPOINT_URL_S3: a password is not allowed here.",
  ],
  [
    { environment: { BATCH_STORE: "/data" } },
    "environment.BATCH_STORE: expected s3://bucket/prefix or none, got /data.",
  ],
  [{ environment: { PORT: "80" } }, "environment.PORT: the platform sets it."],
  [
    { environment: { HOST: "0.0.0.0" } },
    "environment.HOST: the platform needs the service on all addresses, which are :: in a network of IPv6 only.",
  ],
  [{ environment: { MODEL: "/m" } }, "environment.MODEL: set model instead."],
  [{ secrets: { NONSENSE: "x" } }, "secrets.NONSENSE: there is no such setting."],
  [{ secrets: { API_KEY: "sk-1/hunter2" } }, "secrets.API_KEY: expected the name of a secret."],
  [
    { device: { kind: "cuda" } },
    "device.gpu: it is missing; expected one of t4, l4, l40s, rtx-4090, rtx-pro-6000, a100-80gb, h100, h200.",
  ],
  [
    { device: { kind: "cuda", gpu: "l5" } },
    'device.gpu: expected one of t4, l4, l40s, rtx-4090, rtx-pro-6000, a100-80gb, h100, h200, got "l5".',
  ],
])("%j is rejected with the path of the field", ([changes, expected]) => {
  const problems = problemsOf(changes);
  expect(problems).toContain(expected);
  expect(problems.join("\n")).not.toContain("hunter2");
});

test("a deployment in a network of IPv6 only may say so", () => {
  expect(problemsOf({ environment: { HOST: "::" } })).toEqual([]);
});

test("all errors are reported at once", () => {
  expect(problemsOf({ environment: { NONSENSE: 1, MAX_NUM_SEQS: "x" }, dtype: "int5" })).toHaveLength(3);
});

test.for(["", "# No fields yet.\n", "null"])("an empty file is rejected as such: %j", (text) => {
  expect(() => parseDeployment(text)).toThrow(/^The deployment is empty; /);
});

test.for(["a text", "- 1\n"])("a file that is not a mapping of fields is rejected: %j", (text) => {
  expect(() => parseDeployment(text)).toThrow(/^The deployment: expected fields(, got .+)?\.$/);
});

test("invalid YAML is rejected with the line", () => {
  expect(() => parseDeployment("name: a\nname: b\n")).toThrow(
    /^The deployment is not valid YAML: Map keys must be unique at line 2, column 1\.$/,
  );
});

test("several documents are rejected as such", () => {
  expect(() => parseDeployment("name: a\n---\nname: b\n")).toThrow(
    /^The file has several YAML documents; a deployment is one\.$/,
  );
});

test.for(["a.example", "*.a.example", "pictures", "10.example"])("%s is a host", (host) => {
  expect(parse({ hosts: [host] }).hosts).toEqual([host]);
});

test("every example is a valid deployment", async () => {
  const folder = new URL("../../examples/deployments/", import.meta.url);
  const names = await readdir(folder);
  expect(names).not.toEqual([]);
  for (const name of names) parseDeployment(await readFile(new URL(name, folder), "utf8"));
});
