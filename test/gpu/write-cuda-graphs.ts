/**
 * Writes the CUDA graphs of every family and precision, over weights of zeros, for place-nodes.py.
 * Usage: node test/gpu/write-cuda-graphs.ts FOLDER
 */
import { mkdir, truncate, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";

import { configureGraphs } from "../../engine/models/model-graphs.ts";
import { imaginedWeights, type WeightSource } from "../../engine/models/weight-source.ts";
import { bytesPerElement } from "../../engine/weights/safetensors.ts";
import type { StoredTensor } from "../../engine/weights/stored-tensor.ts";
import { cudaDtypes, cudaFamilies, cudaLayouts, familyConfig } from "./cuda-families.ts";

const [target] = process.argv.slice(2);
if (target === undefined) throw new Error("Usage: node test/gpu/write-cuda-graphs.ts FOLDER");
const folder = resolve(target);
const zeros = join(folder, "zeros");
let mostBytes = 0;

function overZeros(tensor: StoredTensor): StoredTensor {
  const byteLength = tensor.shape.reduce((product, size) => product * size, bytesPerElement[tensor.elementType]);
  mostBytes = Math.max(mostBytes, byteLength);
  return { ...tensor, file: zeros, byteLength };
}

const weights: WeightSource = {
  has: () => true,
  quantised: () => null,
  fewestStoredBits: () => 4,
  stored(name, shape) {
    const tensor = imaginedWeights.stored(name, shape);
    return tensor && overZeros(tensor);
  },
  prepared(request) {
    const { weight, scales, zeroPoints } = imaginedWeights.prepared(request);
    return {
      weight: overZeros(weight),
      scales: scales && overZeros(scales),
      zeroPoints: zeroPoints && overZeros(zeroPoints),
    };
  },
};

await mkdir(folder, { recursive: true });
for (const family of cudaFamilies) {
  const config = await familyConfig(family);
  for (const dtype of family.dtypes ?? cudaDtypes) {
    for (const kvLayout of family.layouts ?? cudaLayouts) {
      const graphs = configureGraphs(config, { dtype, device: "cuda", maxModelLen: 64, kvLayout });
      const name = `${family.name.replaceAll(/\W+/g, "-")}.${dtype}`;
      const { graph } = graphs.buildDecoder(weights);
      await writeFile(join(folder, `${name}.decoder.${kvLayout.kind}.onnx`), graph.encode());
      const vision = graphs.buildVisionEncoder(weights);
      if (vision !== null) await writeFile(join(folder, `${name}.vision.onnx`), vision.graph.encode());
    }
  }
}
await writeFile(zeros, "");
await truncate(zeros, mostBytes);
