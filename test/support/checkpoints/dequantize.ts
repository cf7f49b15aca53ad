/** Plain float64 arithmetic as a reference for quantised weights, and values to quantise. */

/** Row-major [rows, columns]; reads codes as documented for `MatMulNBits`. */
export function dequantizeBlockwise(
  {
    weight,
    scales,
    zeroPoints,
  }: { weight: ArrayLike<number>; scales: ArrayLike<number>; zeroPoints?: ArrayLike<number> | null },
  rows: number,
  columns: number,
  { bits, blockSize }: { bits: 4 | 8; blockSize: number },
): Float64Array {
  const numBlocks = Math.ceil(columns / blockSize);
  return Float64Array.from({ length: rows * columns }, (_, index) => {
    const [row, column] = [Math.floor(index / columns), index % columns];
    const position = (row * numBlocks * blockSize + column) * (bits / 8);
    const byte = weight[Math.floor(position)]!;
    const code = bits === 8 ? byte : column % 2 === 0 ? byte & 15 : byte >> 4;
    const block = Math.floor(column / blockSize);
    const zeroPoint = zeroPoints == null ? 2 ** (bits - 1) : zeroPointOf(zeroPoints, row, block, { numBlocks, bits });
    return (code - zeroPoint) * scales[row * numBlocks + block]!;
  });
}

function zeroPointOf(
  zeroPoints: ArrayLike<number>,
  row: number,
  block: number,
  { numBlocks, bits }: { numBlocks: number; bits: 4 | 8 },
): number {
  if (bits === 8) return zeroPoints[row * numBlocks + block]!;
  const byte = zeroPoints[row * Math.ceil(numBlocks / 2) + (block >> 1)]!;
  return block % 2 === 0 ? byte & 15 : byte >> 4;
}

/** Normally distributed, the same on every run. */
export function normalValues(length: number, seed = 1): Float32Array {
  let state = seed;
  const uniform = (): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state + 0.5) / 2 ** 32;
  };
  return Float32Array.from({ length }, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
}
