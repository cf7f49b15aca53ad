/** The texts of tiles in prompts of Idefics3 and of models after it. */
import type { TileGridSize } from "../tiles/tile-values.ts";

const aroundImage = "<fake_token_around_image>";
const wholePicture = "<global-img>";

/** Row by row, each tile behind its place, and a line break behind each row. */
export function layOutTiles({ rows, columns }: TileGridSize, features: string): string {
  let text = "";
  for (let row = 1; row <= rows; row++) {
    for (let column = 1; column <= columns; column++) text += `${aroundImage}<row_${row}_col_${column}>${features}`;
    text += "\n";
  }
  return text;
}

/** The whole picture behind its tiles, or alone. */
export function layOutWhole(features: string): string {
  return `${aroundImage}${wholePicture}${features}${aroundImage}`;
}
