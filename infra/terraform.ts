/** Terraform's JSON syntax, which OpenTofu reads as well. */
import type { RenderedFile } from "./deployment-target.ts";

export interface TerraformModule {
  readonly variable?: Readonly<Record<string, object>>;
  readonly data?: Readonly<Record<string, Readonly<Record<string, object>>>>;
  readonly resource: Readonly<Record<string, Readonly<Record<string, object>>>>;
  readonly output?: Readonly<Record<string, object>>;
}

/**
 * The same value with every text as Terraform reads it: `${` and `%{` of a user would begin an expression. Texts that
 * are expressions of ours stay outside.
 */
export function literal<Value>(value: Value): Value {
  return mapTexts(value, (text) => text.replaceAll(/[$%](?=\{)/g, "$&$&")) as Value;
}

function mapTexts(value: unknown, change: (text: string) => string): unknown {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((entry) => mapTexts(entry, change));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([field, entry]) => [field, mapTexts(entry, change)]));
}

/** `region` null leaves it to the environment of Terraform. */
export function toTerraform(region: string | null, module: TerraformModule): RenderedFile {
  const file = {
    terraform: {
      required_version: ">= 1.6",
      required_providers: { aws: { source: "hashicorp/aws", version: "~> 6.0" } },
    },
    provider: { aws: region === null ? {} : { region } },
    ...module,
  };
  return { path: "main.tf.json", text: `${JSON.stringify(file, null, 2)}\n` };
}
