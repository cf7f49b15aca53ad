/**
 * A deployment as data, described once in a file and rendered for every platform. It contains nothing specific to one
 * platform, and no secrets, only their names.
 */
import { parseDocument } from "yaml";
import type { YAMLError } from "yaml";
import { z } from "zod";

import type { Config } from "../functions/settings/config.ts";
import { ConfigError, maskPasswords } from "../functions/settings/setting.ts";
import { checkSettings } from "./deployment-settings.ts";

export const gpuNames = ["t4", "l4", "l40s", "rtx-4090", "rtx-pro-6000", "a100-80gb", "h100", "h200"] as const;
export type GpuName = (typeof gpuNames)[number];

/** A valid label in Kubernetes, which is the strictest platform. */
const resourceName = z
  .string()
  .max(40)
  .regex(/^[a-z]([a-z0-9-]*[a-z0-9])?$/, "expected lower-case letters, digits and dashes, starting with a letter");

/** With a moving tag, replicas of one deployment could differ. */
const imageReference = z
  .string()
  .regex(
    /^[\w.-]+(:\d+)?(\/[\w.-]+)*(:(?!latest$)[\w.-]+|(:[\w.-]+)?@sha256:[0-9a-f]{64})$/,
    "expected an image with a digest, or a tag other than latest",
  );

const secretName = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_.-]*$/, "expected the name of a secret");

const device = z.discriminatedUnion(
  "kind",
  [
    z.strictObject({ kind: z.literal("cpu") }),
    // One GPU, because a process computes on one GPU and more load means more replicas.
    z.strictObject({ kind: z.enum(["cuda", "webgpu"]), gpu: z.enum(gpuNames) }),
  ],
  "expected cpu, or cuda or webgpu with a gpu",
);

/** As routes and ingresses of Kubernetes take them. */
const hostName = z
  .string()
  .max(253)
  .regex(
    /^(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/,
    "expected a host name in lower case without a scheme and a port, or *. and one",
  );

const s3Address = z.string().regex(/^s3:\/\/[^/\s]+\/\S+$/, "expected s3://bucket/key");

const description = z.strictObject({
  name: resourceName,
  image: imageReference,
  model: z
    .string()
    .refine(
      (model) => !/^oci:/i.test(model) || imageReference.safeParse(model.slice("oci://".length)).success,
      "expected oci:// and an image with a digest, or a tag other than latest",
    )
    .optional(),
  dtype: z.string().optional(),
  device,
  resources: z.strictObject({
    cpu: z.number().positive().max(256),
    memoryGiB: z.number().positive().max(4096),
    diskGiB: z.int().positive().max(4096).default(20),
  }),
  replicas: z
    .strictObject({ min: z.int().min(0).max(1000), max: z.int().min(1).max(1000) })
    .refine(({ min, max }) => min <= max, "expected min to be at most max"),
  concurrency: z.int().positive().max(10_000).optional(),
  worker: z.boolean().default(false),
  environment: z.record(z.string(), z.string("expected text, a number, true or false")).default({}),
  secrets: z.record(z.string(), secretName).default({}),
  s3Role: z.string().min(1).optional(),
  repository: z
    .string()
    .regex(/^[\w.-]+\/[\w.-]+$/, "expected owner/name of a repository on Hugging Face")
    .optional(),
  region: z
    .string()
    .regex(/^[a-z]+(-[a-z0-9]+)+$/, "expected the platform's name of a region")
    .optional(),
  asyncOutput: z
    .string()
    .regex(/^s3:\/\/[^/\s]+(\/\S*)?$/, "expected s3://bucket/prefix")
    .optional(),
  batch: z
    .strictObject({
      input: s3Address,
      output: s3Address,
      timeoutSeconds: z.int().min(60).max(604_800).default(3600),
    })
    .optional(),
  hosts: z.array(hostName).min(1).optional(),
  prometheusUrl: z
    .url({ protocol: /^https?$/, error: "expected an http:// or https:// URL" })
    .refine((url) => !hasCredentials(url), "a user or password is not allowed here")
    .optional(),
  timeouts: z
    .strictObject({
      requestSeconds: z.int().positive().max(86_400).default(300),
      startupSeconds: z.int().min(10).max(86_400).default(600),
      shutdownGraceSeconds: z.int().min(0).max(86_400).optional(),
    })
    .prefault({}),
});

/** Folder at which a checkpoint from an OCI artifact is mounted. */
export const modelImageFolder = "/models/mounted";

/** Names of the fields of a deployment. */
export const deploymentFields: readonly string[] = Object.keys(description.shape);

export interface Deployment {
  readonly name: string;
  readonly image: string;
  readonly device: z.output<typeof device>;
  readonly resources: { readonly cpu: number; readonly memoryGiB: number; readonly diskGiB: number };
  readonly replicas: { readonly min: number; readonly max: number };
  /** Concurrent requests per replica, above which the platform adds another replica. */
  readonly concurrency: number;
  /** Whether replicas only take jobs from the queue JOB_SOURCE, and serve no requests. */
  readonly worker: boolean;
  /** Settings by environment name: known, valid and not secret, without PORT and SHUTDOWN_GRACE_SECONDS. */
  readonly environment: Readonly<Record<string, string>>;
  /** Names of the platform's secrets by environment name. */
  readonly secrets: Readonly<Record<string, string>>;
  /** The platform's own role name for access to S3; null if keys are used, or nothing. */
  readonly s3Role: string | null;
  /** Of Hugging Face, which the platform mounts; null without. */
  readonly repository: string | null;
  /** Null for the platform's default. */
  readonly region: string | null;
  /** `s3://bucket/prefix` for results of asynchronous inference; null for requests that are answered at once. */
  readonly asyncOutput: string | null;
  /** A file of requests that runs once, instead of a service; null for a service. `timeoutSeconds` is that of an attempt. */
  readonly batch: { readonly input: string; readonly output: string; readonly timeoutSeconds: number } | null;
  /** The OCI artifact with the checkpoint, which the platform mounts at `modelImageFolder`; null without. */
  readonly modelImage: string | null;
  /** Host names of requests; at least one. */
  readonly hosts: readonly string[];
  readonly prometheusUrl: string | null;
  readonly timeouts: {
    readonly requestSeconds: number;
    readonly startupSeconds: number;
    /** Null for the platform's own default. */
    readonly shutdownGraceSeconds: number | null;
  };
  /** The service's configuration from `environment`. */
  readonly config: Config;
}

function hasCredentials(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username !== "" || password !== "";
}

/** Parses YAML or JSON. Throws ConfigError with every problem, each with the path of its field. */
export function parseDeployment(text: string): Deployment {
  const document = parseDocument(text);
  // Errors after the first usually follow from it.
  const [syntaxError] = document.errors;
  if (syntaxError !== undefined) throw new ConfigError([describeSyntax(syntaxError)]);
  const fields = withSourceTexts(document.toJS(), text);
  if (fields === null) throw new ConfigError(["The deployment is empty; docs/deployment.md describes its fields."]);
  const result = description.safeParse(fields, { error: expectation });
  if (!result.success) throw new ConfigError(result.error.issues.flatMap((issue) => describeIssue(issue, fields)));
  const { model, dtype, environment, secrets, hosts, timeouts, ...rest } = result.data;
  const modelImage = model?.match(/^oci:\/\/(.+)$/i)?.[1] ?? null;
  const settings = {
    // The default until it is on S3, because the disk of a replica is lost when it ends.
    BATCH_STORE: "none",
    ...environment,
    ...(model !== undefined && { MODEL: modelImage === null ? model : modelImageFolder }),
    ...(dtype !== undefined && { DTYPE: dtype }),
    DEVICE: rest.device.kind,
  };
  const config = checkSettings({ environment, secrets, settings });
  if (rest.worker && config.jobs.source === null && !("JOB_SOURCE" in secrets)) {
    throw new ConfigError(["worker: it needs environment.JOB_SOURCE, the queue to take jobs from."]);
  }
  return {
    ...rest,
    concurrency: rest.concurrency ?? config.engine.maxNumSequences,
    environment: settings,
    secrets,
    s3Role: rest.s3Role ?? null,
    repository: rest.repository ?? null,
    region: rest.region ?? null,
    asyncOutput: rest.asyncOutput ?? null,
    batch: rest.batch ?? null,
    modelImage,
    hosts: hosts ?? [rest.name],
    prometheusUrl: rest.prometheusUrl ?? null,
    timeouts: { ...timeouts, shutdownGraceSeconds: timeouts.shutdownGraceSeconds ?? null },
    config,
  };
}

/** Settings are texts: a number or a boolean of `environment` stays as it is written, so that 1.10 does not become 1.1. */
function withSourceTexts(fields: unknown, text: string): unknown {
  const environment = valueAt(fields, ["environment"]);
  if (!isMapping(fields) || !isMapping(environment)) return fields;
  // In this schema every scalar is a text.
  const sources: unknown = parseDocument(text, { schema: "failsafe" }).toJS();
  const entries = Object.entries(environment).map(([name, value]) => [
    name,
    typeof value === "number" || typeof value === "boolean" ? valueAt(sources, ["environment", name]) : value,
  ]);
  return { ...fields, environment: Object.fromEntries(entries) };
}

function isMapping(value: unknown): value is object {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The parser's message without the excerpt of the file below it. */
function describeSyntax({ code, message }: YAMLError): string {
  if (code === "MULTIPLE_DOCS") return "The file has several YAML documents; a deployment is one.";
  return `The deployment is not valid YAML: ${message.split("\n", 1)[0]!.replace(/:$/, "")}.`;
}

function describeIssue(issue: z.core.$ZodIssue, fields: unknown): string[] {
  const path = issue.path.join(".") || "The deployment";
  if (issue.code === "unrecognized_keys") {
    return issue.keys.map((key) => `${[...issue.path, key].join(".")}: there is no such field.`);
  }
  const value = valueAt(fields, issue.path);
  if (value === undefined) return [`${path}: it is missing; ${issue.message}.`];
  // A value in the place of a secret's name may be the secret itself.
  const isShown = issue.path[0] !== "secrets" && (typeof value !== "object" || value === null);
  const got = isShown ? `, got ${maskPasswords(JSON.stringify(value)).slice(0, MAX_SHOWN_CHARACTERS)}` : "";
  return [`${path}: ${issue.message}${got}.`];
}

/** Maximum number of characters of an invalid value in an error. */
const MAX_SHOWN_CHARACTERS = 200;

function valueAt(fields: unknown, path: readonly PropertyKey[]): unknown {
  return path.reduce(
    (value, key) => (typeof value === "object" && value !== null ? Reflect.get(value, key) : undefined),
    fields,
  );
}

const typeNames: Readonly<Record<string, string>> = {
  array: "a list",
  boolean: "true or false",
  int: "an integer",
  number: "a number",
  object: "fields",
  record: "fields",
  string: "text",
};

/** Replaces zod's own messages, which assume that the reader knows zod. Messages of the schema stay. */
function expectation(issue: z.core.$ZodRawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return `expected ${typeNames[issue.expected] ?? issue.expected}`;
    case "invalid_value":
      return `expected one of ${issue.values.join(", ")}`;
    case "too_small":
      return `expected ${issue.inclusive ? "at least" : "more than"} ${issue.minimum}${unitOf(issue.origin, issue.minimum)}`;
    case "too_big":
      return `expected ${issue.inclusive ? "at most" : "less than"} ${issue.maximum}${unitOf(issue.origin, issue.maximum)}`;
    case "custom":
    case "invalid_element":
    case "invalid_format":
    case "invalid_key":
    case "invalid_union":
    case "not_multiple_of":
    case "unrecognized_keys":
      return undefined;
    default:
      return issue satisfies never;
  }
}

function unitOf(origin: string, count: number | bigint): string {
  if (origin === "array") return Number(count) === 1 ? " entry" : " entries";
  if (origin === "string") return Number(count) === 1 ? " character" : " characters";
  return "";
}
