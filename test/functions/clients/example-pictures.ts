/** Example pictures of the shipped checkpoint, with a question and its answer. */
import { readFile } from "node:fs/promises";

import { pdfOfPictures } from "../../support/requests/pdf-writer.ts";

const folder = new URL("../../../models/fovea-shapes/examples/", import.meta.url);

export interface ExamplePicture {
  /** PNG. */
  readonly bytes: Buffer;
  readonly base64: string;
  readonly dataUrl: string;
}

export async function readExamplePicture(name: "scene" | "label" | "circles"): Promise<ExamplePicture> {
  const bytes = await readFile(new URL(`${name}.png`, folder));
  const base64 = bytes.toString("base64");
  return { bytes, base64, dataUrl: `data:image/png;base64,${base64}` };
}

/** A PDF file with a page for each picture. */
export function writeExampleDocument(...names: readonly ("scene" | "label" | "circles")[]): Promise<Buffer> {
  return pdfOfPictures(...names.map((name) => new URL(`${name}.png`, folder)));
}

export const describeQuestion = "Describe the picture.";
export const sceneAnswer =
  "A large red circle in the top left, a small yellow star in the top right, a large blue square in the center and a large green triangle in the bottom right.";
