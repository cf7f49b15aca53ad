/** Carries out the Containerfile of docs/your-own-image.md on the files of an image, without a container engine. */
import { cp, mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { DockerfileParser } from "dockerfile-ast";
import type { Env } from "dockerfile-ast";

import { copyOf } from "./container-file.ts";
import type { ImageFiles } from "./image-files.ts";

/** The folders that the page copies to. All other paths would be the machine's. */
const ownPath = /(?<![\w.-])\/(models|pipelines|plugins)(?=[/"':\s]|$)/g;

/**
 * @param context The build's folder.
 * @returns The settings of the image, with its paths below the root of `image`.
 */
export async function addLayers(
  containerfile: string,
  context: string,
  { root }: ImageFiles,
): Promise<Readonly<Record<string, string>>> {
  const environment: Record<string, string> = {};
  for (const instruction of DockerfileParser.parse(containerfile).getInstructions()) {
    switch (instruction.getKeyword()) {
      case "FROM":
        break;
      case "COPY": {
        const { sources, destination } = copyOf(instruction);
        if (!destination.match(ownPath))
          throw new Error(`The page copies to ${destination}, which has no stand-in here.`);
        await mkdir(dirname(join(root, destination)), { recursive: true });
        for (const source of sources) await cp(join(context, source), join(root, destination), { recursive: true });
        break;
      }
      case "ENV":
        for (const property of (instruction as Env).getProperties()) {
          const value = property.getValue() ?? "";
          environment[property.getName()] = value.replaceAll(ownPath, (path) => join(root, path));
        }
        break;
      default:
        throw new Error(`The test does not know how to carry out ${instruction.getKeyword()}.`);
    }
  }
  return environment;
}
