/** The values of floating point numbers in 4 and 8 bits, by their codes. */

/** E4M3FN: a sign, four bits of exponent (bias 7), three of mantissa; no infinities, and NaN where all seven are set. */
export const e4m3Values = Float32Array.from({ length: 256 }, (_, code) => {
  const exponent = (code >> 3) & 15;
  const mantissa = code & 7;
  const magnitude = exponent === 0 ? mantissa * 2 ** -9 : (8 + mantissa) * 2 ** (exponent - 10);
  return (code & 0x7f) === 0x7f ? NaN : code < 128 ? magnitude : -magnitude;
});

/** E8M0: powers of two (bias 127); the last code is NaN. */
export const e8m0Values = Float32Array.from({ length: 256 }, (_, code) => (code === 255 ? NaN : 2 ** (code - 127)));

/** E2M1: a sign, two bits of exponent (bias 1), one of mantissa. */
export const e2m1Values = Float32Array.from({ length: 16 }, (_, code) => {
  const magnitude = [0, 0.5, 1, 1.5, 2, 3, 4, 6][code & 7]!;
  return code < 8 ? magnitude : -magnitude;
});
