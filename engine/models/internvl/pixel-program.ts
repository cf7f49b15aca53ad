/** Cuts a picture into tiles, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import { cutPicture } from "../tiles/cut-picture.ts";
import { internGrid, parseInternTileOptions } from "./tiles.ts";

/** `pixel_values`; see `cutPicture`. */
export const toTensors: PixelProgram = (image, json, tools) => {
  const options = parseInternTileOptions(json);
  return new Map([["pixel_values", cutPicture(image, internGrid(image, options), options, tools)]]);
};
