/** Cuts a picture into tiles of the resolution that suits it best, on the threads that decode pictures. */
import { colourOf, padPicture, padToSquare } from "../../multimodal/pad-picture.ts";
import type { PixelProgram, RgbImage } from "../../multimodal/pixel-program.ts";
import { createTileValues } from "../tiles/tile-values.ts";
import { anyresLayout } from "./anyres.ts";
import { featureRows } from "./feature-rows.ts";
import { parseAnyresOptions } from "./image-options.ts";

/** `pixel_values` [numTiles, 3, tile, tile]: the whole picture, then its tiles row by row; and those of `featureRows`. */
export const toTensors: PixelProgram = (image, json, { resample, valuesOfBytes }) => {
  const options = parseAnyresOptions(json);
  const { tile, filter } = options;
  const layout = options.hasSingleTiles || options.frame !== null ? null : anyresLayout(image, options);
  const whole = (picture: RgbImage): RgbImage => resample(picture, { width: tile, height: tile, filter });
  const grid = layout?.tiles ?? { rows: 0, columns: 0 };
  const tiles = createTileValues(1 + grid.rows * grid.columns, tile, valuesOfBytes(options.scaling));
  const isPadded = layout === null && options.frame === null;
  tiles.addTiles(whole(isPadded ? padToSquare(image, colourOf(options.mean)) : image), { rows: 1, columns: 1 });
  if (layout !== null) {
    const fitted = resample(image, { ...layout.picture, filter });
    tiles.addTiles(padPicture(fitted, layout.canvas, [0, 0, 0]), grid);
  }
  return new Map([["pixel_values", tiles.tensor], ...featureRows(layout, options)]);
};
