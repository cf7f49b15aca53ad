/** A pixel program that leaves a trace: one byte in a file per processed picture. */
import { appendFileSync } from "node:fs";

import type { PixelProgram } from "../../../engine/multimodal/pixel-program.ts";

export const toTensors: PixelProgram = (_, { file }) => {
  appendFileSync(file as string, ".");
  return new Map();
};
