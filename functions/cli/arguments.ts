/** The command line: a command, and a flag for every setting (`--max-num-seqs 4` is MAX_NUM_SEQS=4). */
import { parseArgs } from "node:util";

import { settingDescriptions } from "../settings/config.ts";
import { findNearNames } from "../settings/near-names.ts";
import { ConfigError } from "../settings/setting.ts";
import { boolean } from "../settings/values.ts";

const commands = ["serve", "worker", "check", "batch", "render"] as const;
export type Command = (typeof commands)[number];

export interface Rendering {
  readonly platform: string;
  /** Path, or `-` for standard input. */
  readonly deployment: string;
  /** Null for standard output. */
  readonly folder: string | null;
}

export interface Arguments {
  readonly command: Command;
  /** Whether help is asked for: about the command, or about everything if none is named. */
  readonly help: "command" | "everything" | null;
  readonly version: boolean;
  readonly printConfig: boolean;
  /** For `check`: JSON instead of a table. */
  readonly json: boolean;
  /** For `check`: start the engine and fill it. */
  readonly run: boolean;
  /** For `batch`, where it is not null: paths, `s3://bucket/key`, or `-`. */
  readonly files: { readonly input: string; readonly output: string } | null;
  /** For `render`, where it is not null. */
  readonly rendering: Rendering | null;
  /** Settings given as flags, by environment name; they override the environment. */
  readonly settings: Readonly<Record<string, string>>;
}

const actionOptions = {
  help: { type: "boolean", short: "h", default: false },
  version: { type: "boolean", short: "v", default: false },
  "print-config": { type: "boolean", default: false },
  json: { type: "boolean", default: false },
  run: { type: "boolean", default: false },
  input: { type: "string" },
  output: { type: "string" },
  platform: { type: "string" },
  deployment: { type: "string" },
} as const;

/** Options of single commands. A required one has a description of its value. */
const optionsOf: Readonly<Record<Command, Readonly<Record<string, string | null>>>> = {
  serve: {},
  worker: {},
  check: { json: null, run: null },
  batch: { input: "a file, s3://bucket/key, or -", output: "a file, s3://bucket/key, or -" },
  render: {
    platform: "the name of one; fovea render --help lists them",
    deployment: "a YAML file, or - for standard input",
    output: null,
  },
};

/** Throws ConfigError for an unknown command or flag. */
export function parseArguments(argv: readonly string[]): Arguments {
  const flags = new Map(settingDescriptions.map(({ name }) => [toFlag(name), name]));
  const settingOptions = Object.fromEntries([...flags.keys()].map((flag) => [flag, { type: "string" } as const]));
  const { values, positionals, tokens } = parseArgs({
    args: fromVllmForm(argv),
    options: { ...settingOptions, ...actionOptions },
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  const problems: string[] = [];
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    if (isSwitch(token.name)) {
      if (token.value !== undefined) problems.push(`${token.rawName} takes no value, got ${token.value}.`);
      continue;
    }
    if (!flags.has(token.name) && !(token.name in actionOptions))
      problems.push(`There is no option ${token.rawName}; ${suggestion(token.name)}`);
    // parseArgs takes the next flag for the value: `--enforce-eager --port 80`.
    else if (token.name in actionOptions && token.value === "") problems.push(`${token.rawName} is empty.`);
    else if (token.value === undefined || (!token.inlineValue && token.value.startsWith("--")))
      problems.push(`${token.rawName} needs a value${expectationOf(token.name)}.`);
  }
  // `fovea help` and `fovea help check`, as other programs have it.
  const asksForHelp = positionals[0] === "help";
  const [named, ...rest] = asksForHelp ? positionals.slice(1) : positionals;
  const command = named ?? "serve";
  // A word after an unknown option is probably its value and not a command.
  if (problems.length > 0 && !isCommand(command)) throw new ConfigError(problems);
  if (!isCommand(command)) problems.push(`There is no command ${command}; commands: ${commands.join(", ")}.`);
  else if (rest.length > 0) problems.push(`${command} takes no arguments, got ${rest.join(" ")}.`);
  if (isCommand(command) && !asksForHelp) problems.push(...optionProblems(command, values));
  if (problems.length > 0 || !isCommand(command)) throw new ConfigError(problems);

  const settings = Object.entries(values).flatMap(([flag, value]) => {
    const name = flags.get(flag);
    return name !== undefined && typeof value === "string" ? [[name, value] as const] : [];
  });
  return {
    command,
    help: values.help !== true && !asksForHelp ? null : named === undefined ? "everything" : "command",
    version: values.version === true,
    printConfig: values["print-config"] === true,
    json: values.json === true,
    run: values.run === true,
    rendering:
      isText(values.platform) && isText(values.deployment)
        ? {
            platform: values.platform,
            deployment: values.deployment,
            folder: isText(values.output) ? values.output : null,
          }
        : null,
    files: isText(values.input) && isText(values.output) ? { input: values.input, output: values.output } : null,
    settings: Object.fromEntries(settings),
  };
}

const logitsProcessorsFlag = "--logits-processors";

/** Flags that may stand without a value, by either form: the value that they mean. */
const valuesOfSwitches: ReadonlyMap<string, string> = new Map(
  settingDescriptions
    .filter(({ expected }) => expected === boolean().expected)
    .flatMap(({ name }) => [
      [`--${toFlag(name)}`, `--${toFlag(name)}=true`],
      [`--no-${toFlag(name)}`, `--${toFlag(name)}=false`],
    ]),
);

/**
 * vLLM's command lines in the form of ours: underscores in flags are dashes, `--logits-processors A B`, whose values end
 * at the next flag or command, is `--logits-processors A,B`, and `--enforce-eager` and `--no-enforce-eager` have values.
 */
function fromVllmForm(argv: readonly string[]): string[] {
  const args: string[] = [];
  /** The values of the flag so far; null outside of its list. */
  let names: string[] | null = null;
  for (const [index, arg] of [...argv, null].entries()) {
    const endsList = arg === null || arg.startsWith("-") || (names !== null && names.length > 0 && isCommand(arg));
    if (names !== null && !endsList) {
      names.push(arg);
      continue;
    }
    if (names !== null && names.length > 0) args.push(names.join(","));
    if (arg === null) break;
    const flag = arg.replace(/^--[^=]+/, (name) => name.replaceAll("_", "-"));
    const next = argv[index + 1];
    const hasValue = next !== undefined && !next.startsWith("-") && !isCommand(next) && !flag.startsWith("--no-");
    args.push(hasValue ? flag : (valuesOfSwitches.get(flag) ?? flag));
    names = flag === logitsProcessorsFlag ? [] : null;
  }
  return args;
}

/** Options of other commands, missing options, and settings for a command that reads none. */
function optionProblems(command: Command, values: Readonly<Record<string, unknown>>): string[] {
  const isGiven = (flag: string): boolean => values[flag] !== undefined && values[flag] !== false;
  const foreign = new Set(Object.values(optionsOf).flatMap(Object.keys)).difference(
    new Set(Object.keys(optionsOf[command])),
  );
  const problems = [...foreign].filter(isGiven).map((flag) => {
    const owners = commands.filter((name) => flag in optionsOf[name]);
    return `--${flag} is an option of ${owners.join(" and ")}, not of ${command}.`;
  });
  if (values.help === true) return problems;
  for (const [flag, need] of Object.entries(optionsOf[command])) {
    if (need !== null && !isGiven(flag)) problems.push(`${command} needs --${flag}: ${need}.`);
  }
  if (command === "render") {
    const settings = settingDescriptions.map(({ name }) => toFlag(name)).filter(isGiven);
    problems.push(...settings.map((flag) => `--${flag} is a setting; render reads settings from the deployment.`));
  }
  return problems;
}

export function toFlag(settingName: string): string {
  return settingName.toLowerCase().replaceAll("_", "-");
}

/** Which values the setting of a flag takes, after a colon; empty for other options. */
function expectationOf(flag: string): string {
  const setting = settingDescriptions.find(({ name }) => toFlag(name) === flag);
  return setting === undefined ? "" : `: ${setting.expected}`;
}

/** Whether the option has no value. */
function isSwitch(option: string): boolean {
  return option in actionOptions && actionOptions[option as keyof typeof actionOptions].type === "boolean";
}

function isText(value: unknown): value is string {
  return typeof value === "string";
}

function isCommand(name: string): name is Command {
  return (commands as readonly string[]).includes(name);
}

function suggestion(flag: string): string {
  const name = flag.toUpperCase().replaceAll("-", "_");
  const actions = Object.keys(actionOptions).map((option) => option.toUpperCase().replaceAll("-", "_"));
  const ourNames = [...settingDescriptions.map((setting) => setting.name), ...actions];
  const meant = ourNames.includes(name) ? name : findNearNames({ [name]: "" }, ourNames)[0]?.meant;
  return meant === undefined ? "--help lists all options." : `did you mean --${toFlag(meant)}?`;
}
