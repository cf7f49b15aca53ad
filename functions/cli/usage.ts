/** The texts of `--help` and `--print-config`. */
import type { settingTopics } from "../settings/config.ts";
import { maskPasswords, secretMask } from "../settings/setting.ts";
import type { Environment, SettingDescription } from "../settings/setting.ts";
import { toFlag } from "./arguments.ts";
import type { Command } from "./arguments.ts";

const helpOption = ["--help", "print this text and exit"] as const;

interface CommandHelp {
  readonly usage: string;
  readonly summary: string;
  readonly options: readonly (readonly [flag: string, meaning: string])[];
  readonly exitCodes: string;
  readonly examples: readonly string[];
}

/** @param platforms Names of the platforms that `render` supports. */
function helpOfCommands(platforms: readonly string[]): Readonly<Record<Command, CommandHelp>> {
  const printConfig = ["--print-config", "print all settings, with secrets masked, and exit"] as const;
  return {
    serve: {
      usage: "fovea [serve] [--print-config] [--setting value ...]",
      summary: "serve a vision-language model over OpenAI-compatible HTTP (default)",
      options: [printConfig],
      exitCodes:
        "0 ended by SIGTERM, SIGINT or SIGHUP, 1 the port, model or engine fails or requests outlast the grace of a drain, 2 invalid setting or logits processor",
      examples: ["fovea serve --model Qwen/Qwen2.5-VL-3B-Instruct --dtype int8"],
    },
    worker: {
      usage: "fovea worker [--print-config] [--setting value ...]",
      summary: "compute the jobs of the queue JOB_SOURCE; the port serves health and metrics only",
      options: [printConfig],
      exitCodes: "as serve",
      examples: [
        "fovea worker --job-source sqs://sqs.eu-west-1.amazonaws.com/123456789012/questions --job-results s3://bucket/answers",
      ],
    },
    check: {
      usage: "fovea check [--json] [--run] [--setting value ...]",
      summary: "show the model and the memory that it needs, without serving it",
      options: [
        ["--json", "print JSON instead of a table"],
        ["--run", "start the engine, fill it with the largest inputs, and measure"],
      ],
      exitCodes: "0 it fits, 1 it does not fit or does not load, 2 invalid setting or logits processor",
      examples: ["fovea check --model /models/llava --dtype int4 --max-num-seqs 8"],
    },
    batch: {
      usage: "fovea batch --input FILE --output FILE [--setting value ...]",
      summary: "answer a file in OpenAI's Batch format; resumes existing results",
      options: [
        ["--input FILE", "a file, s3://bucket/key, or - for standard input"],
        ["--output FILE", "a file, s3://bucket/key, or - for standard output"],
      ],
      exitCodes: "0 every line has a result, 1 the batch stopped early, 2 invalid setting or file",
      examples: ["fovea batch --input requests.jsonl --output results.jsonl"],
    },
    render: {
      usage: "fovea render --platform NAME --deployment FILE [--output FOLDER]",
      summary: "write the files that a platform needs for a deployment",
      options: [
        ["--platform NAME", platforms.join(", ")],
        ["--deployment FILE", "the description of the deployment in YAML, or - for standard input"],
        ["--output FOLDER", "write files into this folder instead of standard output"],
      ],
      exitCodes: "0 rendered, 2 a field or setting is invalid, or the platform does not support it",
      examples: ["fovea render --platform kubernetes --deployment deployment.yaml --output manifests"],
    },
  };
}

/** The help of everything, with all settings by topic. */
export function formatHelp(topics: typeof settingTopics, platforms: readonly string[]): string {
  const commands = Object.entries(helpOfCommands(platforms));
  const width = Math.max(...topics.flatMap(({ rows }) => rows.map(({ name }) => name.length)));
  const lines = topics.flatMap(({ topic, rows }) => [
    topic,
    ...rows.map(({ name, description, defaultText }) => {
      const ending = defaultText === null ? "" : ` (${defaultText})`;
      return `  ${name.padEnd(width)}  ${description}${ending}`;
    }),
    "",
  ]);
  return [
    ...commands.map(([, { usage }]) => usage),
    "",
    "Commands; fovea COMMAND --help describes one",
    ...columnsOf(commands.map(([command, { summary }]) => [command, summary])),
    "",
    "Options",
    ...columnsOf([
      ["--print-config", "print all settings, with secrets masked, and exit"],
      helpOption,
      ["--version", "print the version and exit"],
    ]),
    "",
    `Settings are environment variables or flags: --${toFlag("MAX_NUM_SEQS")} 4 is MAX_NUM_SEQS=4. Defaults are in parentheses.`,
    "--logits-processors also takes several names, separated by spaces, as vLLM's flag does; flags may have underscores.",
    "Settings that are true or false also accept 1, 0, yes, no, on and off.",
    "",
    ...lines,
  ].join("\n");
}

/** The help of one command, without the settings. */
export function formatCommandHelp(command: Command, platforms: readonly string[]): string {
  const { usage, summary, options, exitCodes, examples } = helpOfCommands(platforms)[command];
  const settings = "Settings are environment variables or flags; fovea --help lists them.";
  return [
    usage,
    "",
    `${summary[0]!.toUpperCase()}${summary.slice(1)}.`,
    "",
    "Options",
    ...columnsOf([...options, helpOption]),
    "",
    `Exit code: ${exitCodes}.`,
    ...(command === "render" ? ["render reads no settings; they are in the deployment."] : [settings]),
    "",
    "Example",
    ...examples.map((example) => `  ${example}`),
    "",
  ].join("\n");
}

function columnsOf(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, meaning]) => `  ${name.padEnd(width)}  ${meaning}`);
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
