/** `node prepare-models.ts FOLDER`: what part 5-8b measures on a card, built while other parts run. */
import { maxLargeLen } from "./experiments/whole-decoder.ts";
import { buildRandomModel, fastBlockSize, largeShape } from "./models.ts";

const folder = process.argv[2]!;
const kvLayout = { kind: "paged", blockSize: fastBlockSize("cuda", largeShape.headDim) } as const;
for (const dtype of ["bfloat16", "int4"] as const) {
  const startedAt = performance.now();
  await buildRandomModel({ shape: largeShape, dtype, device: "cuda", kvLayout, maxModelLen: maxLargeLen, folder });
  console.log(`${largeShape.name} ${dtype}: ${((performance.now() - startedAt) / 1000).toFixed(0)} s`);
}
