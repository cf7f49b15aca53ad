/** The texts of `--help` and `--print-config`. */
import type { Environment, SettingDescription } from "../config.ts";
import { toFlag } from "./arguments.ts";

const MASK = "********";

export function formatHelp(settings: readonly SettingDescription[]): string {
  const lines = settings.map(({ name, description, defaultText }) => {
    const ending = defaultText === null ? "" : ` (${defaultText})`;
    return `  ${name.padEnd(28)}${description}${ending}`;
  });
  return [
    "fovea [serve] [--print-config] [--setting value ...]",
    "",
    "Serves a vision-language model over OpenAI-compatible HTTP.",
    "",
    "  --print-config  show all settings with secrets masked, and end",
    "  --help          show this text, and end",
    "  --version       show the version, and end",
    "",
    `Settings come from the environment, or from flags: --${toFlag("MAX_NUM_SEQS")} 4 is MAX_NUM_SEQS=4.`,
    "",
    ...lines,
    "",
  ].join("\n");
}

/** One `NAME=value` line a setting, with where it comes from. */
export function formatConfig(
  settings: readonly SettingDescription[],
  environment: Environment,
  flags: Readonly<Record<string, string>>,
): string {
  const lines = settings.map(({ name, defaultText, isSecret }) => {
    const given = flags[name] ?? environment[name];
    const isGiven = given !== undefined && given.trim() !== "";
    const value = isGiven ? given.trim() : (defaultText ?? "");
    const source = !isGiven ? "default" : name in flags ? "flag" : "environment";
    return `${`${name}=${isSecret && isGiven ? MASK : maskUrl(quote(value))}`.padEnd(48)} # ${source}`;
  });
  return `${lines.join("\n")}\n`;
}

function quote(value: string): string {
  return /[\s#"'$\\]/.test(value) ? `'${value.replaceAll("'", `'\\''`)}'` : value;
}

/** A password within a URL. */
function maskUrl(value: string): string {
  return value.replace(/(?<=:\/\/)[^/@\s]+(?=@)/g, MASK);
}
