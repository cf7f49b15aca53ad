/** Finds the definition of a checkpoint's model: named by the settings, shipped, or announced by an installed package. */
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import type { EngineConfig } from "../contract/config.ts";
import { EngineError } from "../contract/errors.ts";
import { shown } from "../excerpt.ts";
import { findAnnouncements } from "../installed-packages.ts";
import type { Announcement } from "../installed-packages.ts";
import type { ImageSpelling, ModelDefinition } from "../models/model-definition.ts";
import { chooseDefinition, loadShippedDefinition } from "../models/registry.ts";
import { importExport } from "../sampling/custom/import-export.ts";

export type DefinitionConfig = Pick<EngineConfig, "modelDefinitions" | "modelDefinitionPath">;

/** Where names are looked up without a setting. */
const workingDirectory: readonly string[] = ["."];

/**
 * The settings come first, so that they can replace a definition that ships with Fovea. Packages are searched only for
 * an architecture that neither has.
 *
 * @param json The content of config.json.
 * @throws EngineError `invalid_configuration` for a definition that does not load, `unsupported_model` for an
 *   architecture without one.
 */
export async function findDefinition(
  json: unknown,
  { modelDefinitions: names = [], modelDefinitionPath: searchPath = workingDirectory }: DefinitionConfig,
): Promise<ModelDefinition> {
  const named = await Promise.all(names.map((name) => loadDefinition(name, name, searchPath)));
  const chosen = chooseDefinition(named, json);
  if (chosen !== null) return chosen;
  try {
    return await loadShippedDefinition(json);
  } catch (error) {
    if (!(error instanceof EngineError) || error.code !== "unsupported_model") throw error;
    const announced = await findAnnouncements([...searchPath, "."], "models");
    const references = announced.flatMap(referencesOf);
    const installed = await Promise.all(
      references.map(({ name, reference }) => loadDefinition(name, reference, searchPath)),
    );
    const definition = chooseDefinition(installed, json);
    if (definition === null) throw error;
    return definition;
  }
}

async function loadDefinition(
  name: string,
  reference: string,
  searchPath: readonly string[],
): Promise<ModelDefinition> {
  let value: unknown;
  if (!reference.includes(":")) {
    throw refusal(name, "could not be loaded: it has no colon; expected <module>:<export>, such as acme_vl:acmeVl.");
  }
  try {
    ({ value } = await importExport(reference, searchPath));
  } catch (cause) {
    throw refusal(name, `could not be loaded: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  checkDefinition(name, value ?? {});
  return value as ModelDefinition;
}

type DefinitionFields = Partial<Record<keyof ModelDefinition, unknown>>;

/** Modules in JavaScript are not checked by a compiler. */
function checkDefinition(name: string, definition: DefinitionFields): void {
  const { architecture, images, configure, imagePlaceholder, imageSpelling } = definition;
  if (typeof architecture !== "string")
    throw refusal(name, `has the architecture ${shown(architecture)}; expected a text.`);
  if (typeof configure !== "function") throw refusal(name, "has no function configure.");
  if (imagePlaceholder !== undefined) checkPlaceholder(name, "imagePlaceholder", imagePlaceholder);
  if (imageSpelling !== undefined) checkSpelling(name, imageSpelling);
  if (images === null) return;
  const parts = (images ?? {}) as Readonly<Record<string, unknown>>;
  for (const part of ["createProcessingInfo", "createProcessor"]) {
    if (typeof parts[part] !== "function")
      throw refusal(name, `has images without a function ${part}; null is a text model.`);
  }
}

function checkSpelling(name: string, spelling: unknown): void {
  if (typeof spelling !== "object" || spelling === null) {
    throw refusal(
      name,
      `has the imageSpelling ${shown(spelling)}; expected an object with the texts imageStart, imageEnd and imagePlaceholder.`,
    );
  }
  const fields = spelling as Readonly<Partial<Record<keyof ImageSpelling, unknown>>>;
  checkPlaceholder(name, "imageSpelling.imagePlaceholder", fields.imagePlaceholder);
  for (const field of ["imageStart", "imageEnd"] as const) {
    if (typeof fields[field] === "string") continue;
    throw refusal(
      name,
      `has the imageSpelling.${field} ${shown(fields[field])}; expected a text, which is "" for an image without it.`,
    );
  }
}

function checkPlaceholder(name: string, field: string, placeholder: unknown): void {
  if (typeof placeholder === "string" && placeholder !== "") return;
  throw refusal(name, `has the ${field} ${shown(placeholder)}; expected a text that is not empty.`);
}

function referencesOf({
  packageName,
  folder,
  value,
}: Announcement): { readonly name: string; readonly reference: string }[] {
  const entries = typeof value === "object" && value !== null ? Object.entries(value) : [];
  const isValid = entries.every(([, path]) => typeof path === "string" && /^\.\/[^:]+:[^:]+$/.test(path));
  if (!isValid || entries.length === 0) {
    throw refusal(`of package.json of ${packageName}`, 'is announced wrongly; expected {"name": "./file.js:export"}.');
  }
  return entries.map(([name, path]: [string, string]) => {
    const colon = path.lastIndexOf(":");
    const file = pathToFileURL(join(folder, path.slice(0, colon))).href;
    return { name: `${name} of ${packageName}`, reference: file + path.slice(colon) };
  });
}

function refusal(name: string, problem: string, cause?: unknown): EngineError {
  const options = { setting: "modelDefinitions", ...(cause !== undefined && { cause }) } as const;
  return new EngineError("invalid_configuration", `The model definition ${name} ${problem}`, options);
}
