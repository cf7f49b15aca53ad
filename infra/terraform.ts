/** Terraform's JSON syntax, which OpenTofu reads as well. */
import type { RenderedFile } from "./deployment-target.ts";

export interface TerraformModule {
  readonly variable?: Readonly<Record<string, object>>;
  readonly data?: Readonly<Record<string, Readonly<Record<string, object>>>>;
  readonly resource: Readonly<Record<string, Readonly<Record<string, object>>>>;
  readonly output?: Readonly<Record<string, object>>;
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
