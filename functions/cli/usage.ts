/** The texts of `--help` and `--print-config`. */
import { maskPasswords, secretMask } from "../settings/setting.ts";
import type { Environment, SettingDescription } from "../settings/setting.ts";
import { toFlag } from "./arguments.ts";

/** @param platforms Names of the platforms that `render` supports. */
export function formatHelp(settings: readonly SettingDescription[], platforms: readonly string[]): string {
  const width = Math.max(...settings.map(({ name }) => name.length));
  const lines = settings.map(({ name, description, defaultText }) => {
    const ending = defaultText === null ? "" : ` (${defaultText})`;
    return `  ${name.padEnd(width)}  ${description}${ending}`;
  });
  return [
    "fovea [serve] [--print-config] [--setting value ...]",
    "fovea worker [--print-config] [--setting value ...]",
    "fovea check [--json] [--run] [--setting value ...]",
    "fovea batch --input FILE --output FILE [--setting value ...]",
    "fovea render --platform NAME --deployment FILE [--output FOLDER]",
    "",
    "Commands",
    "  serve   serve a vision-language model over OpenAI-compatible HTTP (default)",
    "  worker  compute the jobs of the queue JOB_SOURCE; the port serves health and metrics only",
    "  check   show the model and the memory that it needs, without serving it",
    "          exit code: 0 it fits, 1 it does not fit or does not load, 2 invalid setting or logits processor",
    "  batch   answer a file in OpenAI's Batch format; a file may be s3://bucket/key or - for standard input or output; resumes existing results",
    "          exit code: 0 every line has a result, 1 the batch stopped early, 2 invalid setting or file",
    "  render  write the files that a platform needs for a deployment, to standard output or into a folder",
    `          platforms: ${platforms.join(", ")}`,
    "          exit code: 2 a field or setting is invalid, or the platform does not support it",
    "",
    "Options",
    "  --print-config  print all settings, with secrets masked, and exit",
    "  --json          check: print JSON instead of a table",
    "  --run           check: start the engine, fill it with the largest inputs, and measure",
    "  --help          print this text and exit",
    "  --version       print the version and exit",
    "",
    `Settings, from the environment or as flags: --${toFlag("MAX_NUM_SEQS")} 4 is MAX_NUM_SEQS=4. Defaults are in parentheses.`,
    "--logits-processors also takes several names, separated by spaces, as vLLM's flag does; flags may have underscores.",
    "Settings that are true or false also accept 1, 0, yes, no, on and off.",
    "",
    ...lines,
    "",
  ].join("\n");
}

export interface DescribedSetting {
  readonly name: string;
  /** In a shell's notation, secrets masked. */
  readonly value: string;
  readonly source: "default" | "flag" | "environment";
}

export function describeSettings(
  settings: readonly SettingDescription[],
  environment: Environment,
  flags: Readonly<Record<string, string>>,
): DescribedSetting[] {
  return settings.map(({ name, defaultText, isSecret }) => {
    const given = flags[name] ?? environment[name];
    const isGiven = given !== undefined && given.trim() !== "";
    const value = isGiven ? given.trim() : (defaultText ?? "");
    const source = !isGiven ? "default" : name in flags ? "flag" : "environment";
    return { name, value: isSecret && isGiven ? secretMask : maskPasswords(quote(value)), source };
  });
}

/** One `NAME=value` line a setting, with where it comes from. */
export function formatConfig(
  settings: readonly SettingDescription[],
  environment: Environment,
  flags: Readonly<Record<string, string>>,
): string {
  const lines = describeSettings(settings, environment, flags).map(
    ({ name, value, source }) => `${`${name}=${value}`.padEnd(48)} # ${source}`,
  );
  return `${lines.join("\n")}\n`;
}

function quote(value: string): string {
  return /[\s#"'$\\]/.test(value) ? `'${value.replaceAll("'", `'\\''`)}'` : value;
}
