/**
 * Uniform numbers as a pure function of a request's seed and the position, so that a request draws the same tokens
 * alone, in any batch, and after a preemption.
 */

/**
 * A number in [0, 1) with 53 random bits. Philox 4x32 with 10 rounds (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3", 2011): the key is the seed, the counter the position.
 */
export function uniformAt(seed: number, position: number): number {
  const [high, low] = philox4x32(position >>> 0, 0, 0, 0, seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0);
  return ((high >>> 5) * 2 ** 26 + (low >>> 6)) / 2 ** 53;
}

/** Four random words for a counter of four words and a key of two. */
export function philox4x32(
  counter0: number,
  counter1: number,
  counter2: number,
  counter3: number,
  key0: number,
  key1: number,
): [number, number, number, number] {
  let [a, b, c, d] = [counter0, counter1, counter2, counter3];
  for (let round = 0; round < 10; round++) {
    const highOfA = multiplyHigh(0xd2511f53, a);
    const lowOfA = Math.imul(0xd2511f53, a);
    const highOfC = multiplyHigh(0xcd9e8d57, c);
    const lowOfC = Math.imul(0xcd9e8d57, c);
    a = (highOfC ^ b ^ key0) >>> 0;
    b = lowOfC >>> 0;
    c = (highOfA ^ d ^ key1) >>> 0;
    d = lowOfA >>> 0;
    key0 = (key0 + 0x9e3779b9) >>> 0;
    key1 = (key1 + 0xbb67ae85) >>> 0;
  }
  return [a, b, c, d];
}

/** Upper 32 bits of the product of two unsigned 32-bit integers. */
function multiplyHigh(x: number, y: number): number {
  const xLow = x & 0xffff;
  const xHigh = x >>> 16;
  const yLow = y & 0xffff;
  const yHigh = y >>> 16;
  const middle = xHigh * yLow + ((xLow * yLow) >>> 16);
  const lowerMiddle = (middle & 0xffff) + xLow * yHigh;
  return (xHigh * yHigh + Math.floor(middle / 0x10000) + Math.floor(lowerMiddle / 0x10000)) >>> 0;
}
