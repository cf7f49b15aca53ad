/** Cuts a page into tiles, on the threads that decode pictures. */
import type { PixelProgram } from "../../multimodal/pixel-program.ts";
import type { ItemTensor } from "../../multimodal/processed-item.ts";
import { cutPicture } from "../tiles/cut-picture.ts";
import { pageGrid, parsePageOptions } from "./tiles.ts";

/** `pixel_values`, see `cutPicture`; and `fine_route` int64 []: 1 for a page on the fine path, otherwise 0. */
export const toTensors: PixelProgram = (image, json, tools) => {
  const options = parsePageOptions(json);
  const isFine = BigInt64Array.of(BigInt(options.fine_route));
  return new Map<string, ItemTensor>([
    ["pixel_values", cutPicture(image, pageGrid(image, options), options, tools)],
    ["fine_route", { elementType: "int64", shape: [], data: isFine }],
  ]);
};
