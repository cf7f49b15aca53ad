/** The CUDA graphs of every family, precision and KV layout, and of adapters, as files over weights of zeros. */
import { mkdir, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";

import { layersOf } from "../../engine/models/decoder-shape.ts";
import { imaginedWeights, type WeightSource } from "../../engine/models/weight-source.ts";
import { bytesPerElement } from "../../engine/weights/safetensors.ts";
import type { StoredTensor } from "../../engine/weights/stored-tensor.ts";
import { configureGraphs } from "../support/engine/shipped-models.ts";
import { cudaDtypes, cudaFamilies, cudaLayouts, familyConfig } from "./cuda-families.ts";

/** Of two adapters that change every linear layer. */
const ranks = [8, 16] as const;

/**
 * Writes `{family}.{dtype}.decoder.{layout}.onnx`, the same with adapters that requests choose as
 * `{family}.{dtype}.adapters.{layout}.onnx`, with keys and values in 8-bit floats as `{family}.{dtype}.fp8.paged.onnx`
 * where there are kernels for the heads, and `{family}.{dtype}.vision.onnx`; returns the names.
 */
export async function writeCudaGraphs(folder: string): Promise<string[]> {
  const names: string[] = [];
  const zeros = join(folder, "zeros");
  let mostBytes = 0;
  const overZeros = (tensor: StoredTensor): StoredTensor => {
    const byteLength = tensor.shape.reduce((product, size) => product * size, bytesPerElement[tensor.elementType]);
    mostBytes = Math.max(mostBytes, byteLength);
    return { ...tensor, file: zeros, byteLength };
  };
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
  const withAdapters: WeightSource = {
    ...weights,
    adapters: {
      ranks,
      matrices({ name, layers, inFeatures, elementType }) {
        const numColumns = layers.length * ranks.reduce((sum, rank) => sum + rank, 0);
        const outFeatures = layers.reduce((sum, layer) => sum + layer.outFeatures, 0);
        const matrix = (part: string, width: number): StoredTensor =>
          overZeros({
            name: `${name}.adapters.${part}`,
            elementType,
            shape: [numColumns, width],
            file: "/",
            byteOffset: 0,
            byteLength: 0,
          });
        return { down: matrix("down", inFeatures), up: matrix("up", outFeatures), numLayers: layers.length };
      },
    },
  };
  const write = async (name: string, bytes: Uint8Array): Promise<void> => {
    names.push(name);
    await writeFile(join(folder, name), bytes);
  };
  await mkdir(folder, { recursive: true });
  for (const family of cudaFamilies) {
    const config = await familyConfig(family);
    for (const dtype of family.dtypes ?? cudaDtypes) {
      for (const kvLayout of family.layouts ?? cudaLayouts) {
        const graphs = configureGraphs(config, { dtype, device: "cuda", maxModelLen: 64, kvLayout });
        const name = `${family.name.replaceAll(/\W+/g, "-")}.${dtype}`;
        await write(`${name}.decoder.${kvLayout.kind}.onnx`, graphs.buildDecoder(weights).graph.encode());
        if (kvLayout.kind === "paged" && layersOf(graphs.model.decoder).every(({ headDim }) => headDim >= 64)) {
          const form = { kvLayout: { kind: "paged", blockSize: 128 }, kvPrecision: { kind: "fp8" } } as const;
          const withFp8 = configureGraphs(config, { dtype, device: "cuda", maxModelLen: 64, ...form });
          await write(`${name}.fp8.paged.onnx`, withFp8.buildDecoder(weights).graph.encode());
        }
        if (dtype === "bfloat16" || dtype === "int4") {
          await write(`${name}.adapters.${kvLayout.kind}.onnx`, graphs.buildDecoder(withAdapters).graph.encode());
        }
        const vision = graphs.buildVisionEncoder(weights);
        if (vision === null || names.includes(`${name}.vision.onnx`)) continue;
        await write(`${name}.vision.onnx`, vision.graph.encode());
      }
    }
  }
  await writeFile(zeros, "");
  await truncate(zeros, mostBytes);
  return names;
}
