/** Fixed positions of a tile's embeddings. */

const BASE = 10_000;

/**
 * Row-major [side * side, width]: sines and cosines of the column, then of the row, a quarter of the width each. In
 * double precision, like transformers' `GraniteDoclingPositionEmbedding`.
 */
export function columnsThenRows(side: number, width: number): Float32Array {
  const quarter = width / 4;
  const values = new Float32Array(side * side * width);
  for (let place = 0; place < side * side; place++) {
    const coordinates = [place % side, Math.floor(place / side)];
    for (const [axis, coordinate] of coordinates.entries()) {
      const start = place * width + axis * 2 * quarter;
      for (let index = 0; index < quarter; index++) {
        const angle = coordinate / BASE ** (index / quarter);
        values[start + index] = Math.sin(angle);
        values[start + quarter + index] = Math.cos(angle);
      }
    }
  }
  return values;
}
