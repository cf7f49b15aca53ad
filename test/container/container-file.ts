/** Parses container/Containerfile: its stages, and the files of the repository that an image is built from. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { DockerfileParser } from "dockerfile-ast";
import type { Copy, Env, From, Instruction } from "dockerfile-ast";

export const repository = fileURLToPath(new URL("../../", import.meta.url));

export interface Stage {
  readonly name: string;
  /** Another stage, or an image. */
  readonly from: string;
  readonly instructions: readonly Instruction[];
}

export interface CopyOf {
  /** Null for the repository. */
  readonly stage: string | null;
  readonly sources: readonly string[];
  readonly destination: string;
}

/** Stages by name, in order. Names of images are the defaults of their arguments. */
export async function readStages(): Promise<ReadonlyMap<string, Stage>> {
  const file = DockerfileParser.parse(await readFile(join(repository, "container/Containerfile"), "utf8"));
  const defaults = new Map<string, string>();
  const stages = new Map<string, Stage & { readonly instructions: Instruction[] }>();
  let current: (Stage & { readonly instructions: Instruction[] }) | null = null;
  for (const instruction of file.getInstructions()) {
    if (instruction.getKeyword() === "FROM") {
      const from = instruction as From;
      const image = (from.getImage() ?? "").replace(/\$\{(\w+)\}/, (_, name: string) => defaults.get(name) ?? "");
      current = { name: from.getBuildStage() ?? "", from: image, instructions: [] };
      stages.set(current.name, current);
    } else if (current === null) {
      const [name, value] = textOf(instruction).split("=");
      defaults.set(name!, value!);
    } else current.instructions.push(instruction);
  }
  return stages;
}

/** Instructions of a stage and of the stages it is based on, in order. */
export function instructionsOf(stages: ReadonlyMap<string, Stage>, name: string): readonly Instruction[] {
  const stage = stages.get(name);
  return stage === undefined ? [] : [...instructionsOf(stages, stage.from), ...stage.instructions];
}

export function environmentOf(instructions: readonly Instruction[]): Readonly<Record<string, string>> {
  const properties = withKeyword(instructions, "ENV").flatMap((instruction) => (instruction as Env).getProperties());
  return Object.fromEntries(properties.map((property) => [property.getName(), property.getValue() ?? ""]));
}

/** The words of the last exec form after a keyword. Throws for a form that would run a shell. */
export function execFormOf(instructions: readonly Instruction[], keyword: string): readonly string[] {
  const last = withKeyword(instructions, keyword).at(-1);
  if (last === undefined) throw new Error(`There is no ${keyword}.`);
  return JSON.parse(textOf(last).replace(/^CMD /, "")) as readonly string[];
}

export function copyOf(instruction: Instruction): CopyOf {
  const paths = instruction.getArguments().map((argument) => argument.getValue());
  const flag = (instruction as Copy).getFromFlag();
  return { stage: flag?.getValue() ?? null, sources: paths.slice(0, -1), destination: paths.at(-1) ?? "" };
}

export function withKeyword(instructions: readonly Instruction[], keyword: string): readonly Instruction[] {
  return instructions.filter((instruction) => instruction.getKeyword() === keyword);
}

/** The text after the keyword, joined to one line. */
export function textOf(instruction: Instruction): string {
  return (instruction.getRawArgumentsContent() ?? "").replace(/\\\n\s*/g, "");
}

/** The paths that .dockerignore includes in a build, and those that it excludes again; plain paths only. */
export async function readContext(): Promise<{
  readonly included: readonly string[];
  readonly excluded: readonly string[];
}> {
  const text = await readFile(join(repository, ".dockerignore"), "utf8");
  const [everything, ...patterns] = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  if (everything !== "*") throw new Error(`.dockerignore begins with ${everything}; expected *.`);
  return {
    included: patterns.filter((pattern) => pattern.startsWith("!")).map((pattern) => pattern.slice(1)),
    excluded: patterns.filter((pattern) => !pattern.startsWith("!")),
  };
}
