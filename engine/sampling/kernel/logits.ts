/**
 * Passes over whole rows of logits, 128 bits at a time. This file is AssemblyScript: `npm run build:kernels` compiles
 * it to logits.wasm, a test compares the two, and only engine/sampling/logits-kernel.ts calls it. Rows follow each
 * other, so their starts and lengths have no alignment.
 */

/** As in exponential.ts and token-draw.ts. */
const STEPS_PER_UNIT: f32 = 64;
const NUM_BUCKETS = 2048;
const NUM_OUTSIDE = 8;

/** Largest of `numTokens` floats; NaN is ignored. */
export function maximum(row: usize, numTokens: usize): f32 {
  let first = f32x4.splat(-Infinity);
  let second = first;
  const end = row + numTokens * 4;
  const endOfEights = row + (numTokens & ~7) * 4;
  let from = row;
  for (; from < endOfEights; from += 32) {
    first = f32x4.pmax(first, v128.load(from));
    second = f32x4.pmax(second, v128.load(from, 16));
  }
  first = f32x4.pmax(first, second);
  let largest = max(
    max(f32x4.extract_lane(first, 0), f32x4.extract_lane(first, 1)),
    max(f32x4.extract_lane(first, 2), f32x4.extract_lane(first, 3)),
  );
  for (; from < end; from += 4) {
    const value = load<f32>(from);
    if (value > largest) largest = value;
  }
  return largest;
}

/** Lowest index of the largest of `numTokens` floats; -1 if all are -Infinity or NaN. */
export function argmax(row: usize, numTokens: usize): i32 {
  const largest = maximum(row, numTokens);
  if (largest == -Infinity) return -1;
  const wanted = f32x4.splat(largest);
  let token: usize = 0;
  while (token + 4 <= numTokens && !v128.any_true(f32x4.eq(v128.load(row + token * 4), wanted))) token += 4;
  while (load<f32>(row + token * 4) != largest) token++;
  return <i32>token;
}

/** exp(-rest / STEPS_PER_UNIT) of rests in [0, 1], by its series. */
function expOfRest(rest: v128): v128 {
  const linear: f32 = -1 / STEPS_PER_UNIT;
  let series = f32x4.splat((linear * linear * linear) / 6);
  series = f32x4.add(f32x4.mul(series, rest), f32x4.splat((linear * linear) / 2));
  series = f32x4.add(f32x4.mul(series, rest), f32x4.splat(linear));
  return f32x4.add(f32x4.mul(series, rest), f32x4.splat(1));
}

function addMass(masses: usize, bucket: i32, mass: f32): void {
  const place = masses + ((<usize>bucket) << 3);
  store<f64>(place, load<f64>(place) + <f64>mass);
}

/**
 * Assigns each of `numTokens` tokens to the bucket of its distance from the largest scaled logit, and adds its
 * probability, relative to the bucket's upper edge, to the bucket's mass. Tokens too far away and NaN rotate over the
 * buckets after the last one, because additions to one address wait for each other.
 *
 * `buckets` has 16 bits per token, `masses` 64 bits per bucket.
 */
export function fillBuckets(
  row: usize,
  numTokens: usize,
  scale: f32,
  largest: f32,
  buckets: usize,
  masses: usize,
): void {
  memory.fill(masses, 0, (NUM_BUCKETS + NUM_OUTSIDE) * 8);
  const scales = f32x4.splat(scale);
  const top = f32x4.splat(largest);
  const steps = f32x4.splat(STEPS_PER_UNIT);
  const limit = f32x4.splat(<f32>NUM_BUCKETS);
  const outside = i32x4.splat(NUM_BUCKETS);
  const leftOutside = i32x4.add(outside, i32x4(0, 1, 2, 3));
  const rightOutside = i32x4.add(outside, i32x4(4, 5, 6, 7));
  const numInEights = numTokens & ~7;
  let token: usize = 0;
  for (; token < numInEights; token += 8) {
    const from = row + token * 4;
    const leftAt = f32x4.mul(f32x4.sub(top, f32x4.mul(v128.load(from), scales)), steps);
    const rightAt = f32x4.mul(f32x4.sub(top, f32x4.mul(v128.load(from, 16), scales)), steps);
    const left = v128.bitselect(i32x4.trunc_sat_f32x4_s(leftAt), leftOutside, f32x4.lt(leftAt, limit));
    const right = v128.bitselect(i32x4.trunc_sat_f32x4_s(rightAt), rightOutside, f32x4.lt(rightAt, limit));
    v128.store(buckets + token * 2, i16x8.narrow_i32x4_u(left, right));
    const leftMass = expOfRest(f32x4.sub(leftAt, f32x4.convert_i32x4_s(left)));
    const rightMass = expOfRest(f32x4.sub(rightAt, f32x4.convert_i32x4_s(right)));
    addMass(masses, i32x4.extract_lane(left, 0), f32x4.extract_lane(leftMass, 0));
    addMass(masses, i32x4.extract_lane(left, 1), f32x4.extract_lane(leftMass, 1));
    addMass(masses, i32x4.extract_lane(left, 2), f32x4.extract_lane(leftMass, 2));
    addMass(masses, i32x4.extract_lane(left, 3), f32x4.extract_lane(leftMass, 3));
    addMass(masses, i32x4.extract_lane(right, 0), f32x4.extract_lane(rightMass, 0));
    addMass(masses, i32x4.extract_lane(right, 1), f32x4.extract_lane(rightMass, 1));
    addMass(masses, i32x4.extract_lane(right, 2), f32x4.extract_lane(rightMass, 2));
    addMass(masses, i32x4.extract_lane(right, 3), f32x4.extract_lane(rightMass, 3));
  }
  for (; token < numTokens; token++) {
    const at = (largest - load<f32>(row + token * 4) * scale) * STEPS_PER_UNIT;
    const bucket = at < <f32>NUM_BUCKETS ? <i32>at : NUM_BUCKETS;
    store<u16>(buckets + token * 2, <u16>bucket);
    addMass(masses, bucket, f32x4.extract_lane(expOfRest(f32x4.splat(at - <f32>bucket)), 0));
  }
}
