/** The texts of `--help` and `--print-config`. */
import { maskPasswords, secretMask } from "../settings/setting.ts";
import type { Environment, SettingDescription } from "../settings/setting.ts";
import { toFlag } from "./arguments.ts";

/** @param platforms Names of those that `render` knows. */
export function formatHelp(settings: readonly SettingDescription[], platforms: readonly string[]): string {
  const width = Math.max(...settings.map(({ name }) => name.length));
  const lines = settings.map(({ name, description, defaultText }) => {
    const ending = defaultText === null ? "" : ` (${defaultText})`;
    return `  ${name.padEnd(width)}  ${description}${ending}`;
  });
  return [
    "fovea [serve] [--print-config] [--setting value ...]",
    "fovea check [--json] [--run] [--setting value ...]",
    "fovea batch --input FILE --output FILE [--setting value ...]",
    "fovea render --platform NAME --deployment FILE [--output FOLDER]",
    "",
    "serve  serves a vision-language model over OpenAI-compatible HTTP",
    "check  shows what would be served and the memory it takes, without serving; ends with 0 where it fits,",
    "       1 where it does not or the model does not load, 2 for a wrong setting or logits processor",
    "batch  answers the lines of a file in OpenAI's Batch format, - for standard input or output; a FILE of results is",
    "       continued; ends with 0 when every line has a result, 1 where it had to stop, 2 for a wrong setting or file",
    "render writes what a platform needs to run a deployment, described in a YAML file, to standard output or into a",
    `       folder; platforms: ${platforms.join(", ")};`,
    "       ends with 2 where a field or a setting is wrong, or where the platform cannot do it",
    "",
    "  --print-config  show all settings with secrets masked, and end",
    "  --json          of check: print JSON instead of a table",
    "  --run           of check: start the engine, fill it with the largest inputs, and measure",
    "  --help          show this text, and end",
    "  --version       show the version, and end",
    "",
    `Settings come from the environment, or from flags: --${toFlag("MAX_NUM_SEQS")} 4 is MAX_NUM_SEQS=4.`,
    "Settings that are true or false also take 1, 0, yes, no, on and off.",
    "",
    ...lines,
    "",
  ].join("\n");
}

export interface DescribedSetting {
  readonly name: string;
  /** As a shell takes it, secrets masked. */
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
