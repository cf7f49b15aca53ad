/** Plain float64 arithmetic as a reference for quantised weights, and values to quantise. */

/** Row-major [rows, columns]; reads codes as documented for `MatMulNBits`. */
export function dequantizeBlockwise(
  { weight, scales }: { weight: ArrayLike<number>; scales: ArrayLike<number> },
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
    return (code - 2 ** (bits - 1)) * scales[row * numBlocks + Math.floor(column / blockSize)]!;
  });
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
