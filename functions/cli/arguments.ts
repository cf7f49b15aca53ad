/** The command line: a command, and a flag for every setting (`--max-num-seqs 4` is MAX_NUM_SEQS=4). */
import { parseArgs } from "node:util";

import { ConfigError, settingDescriptions } from "../config.ts";
import { findNearNames } from "../near-names.ts";

const commands = ["serve", "check", "batch"] as const;
type Command = (typeof commands)[number];

export interface Arguments {
  readonly command: Command;
  readonly help: boolean;
  readonly version: boolean;
  readonly printConfig: boolean;
  /** Of `check`: JSON instead of a table. */
  readonly json: boolean;
  /** Of `check`: start the engine and fill it. */
  readonly run: boolean;
  /** Of `batch`, and not null there: paths, or `-`. */
  readonly files: { readonly input: string; readonly output: string } | null;
  /** Settings given as flags, by environment name; they come before the environment's. */
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
} as const;

/** Options of one command. */
const commandOf = { json: "check", run: "check", input: "batch", output: "batch" } as const;

/** Throws ConfigError for an unknown command or flag. */
export function parseArguments(argv: readonly string[]): Arguments {
  const flags = new Map(settingDescriptions.map(({ name }) => [toFlag(name), name]));
  const settingOptions = Object.fromEntries([...flags.keys()].map((flag) => [flag, { type: "string" } as const]));
  const { values, positionals, tokens } = parseArgs({
    args: [...argv],
    options: { ...settingOptions, ...actionOptions },
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  const problems: string[] = [];
  for (const token of tokens) {
    if (token.kind !== "option" || isSwitch(token.name)) continue;
    if (!flags.has(token.name) && !(token.name in actionOptions))
      problems.push(`There is no option ${token.rawName}${suggestion(token.name)}.`);
    else if (token.value === undefined) problems.push(`${token.rawName} needs a value.`);
  }
  const [command = "serve", ...rest] = positionals;
  if (!isCommand(command)) problems.push(`There is no command ${command}; commands: ${commands.join(", ")}.`);
  else if (rest.length > 0) problems.push(`${command} takes no arguments, got ${rest.join(" ")}.`);
  for (const [flag, itsCommand] of Object.entries(commandOf)) {
    const isGiven = values[flag] !== undefined && values[flag] !== false;
    if (isGiven && command !== itsCommand) problems.push(`--${flag} is an option of ${itsCommand}, not of ${command}.`);
    if (!isGiven && command === "batch" && itsCommand === "batch" && values.help !== true)
      problems.push(`batch needs --${flag}: a file, or -.`);
  }
  if (problems.length > 0 || !isCommand(command)) throw new ConfigError(problems);

  const settings = Object.entries(values).flatMap(([flag, value]) => {
    const name = flags.get(flag);
    return name !== undefined && typeof value === "string" ? [[name, value] as const] : [];
  });
  return {
    command,
    help: values.help === true,
    version: values.version === true,
    printConfig: values["print-config"] === true,
    json: values.json === true,
    run: values.run === true,
    files: isText(values.input) && isText(values.output) ? { input: values.input, output: values.output } : null,
    settings: Object.fromEntries(settings),
  };
}

export function toFlag(settingName: string): string {
  return settingName.toLowerCase().replaceAll("_", "-");
}

/** Whether it is an option without a value. */
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
  const [near] = findNearNames(
    { [name]: "" },
    settingDescriptions.map((setting) => setting.name),
  );
  return near === undefined ? "; --help lists all" : `; did you mean --${toFlag(near.meant)}?`;
}
