/** Counts the numbers that a configuration's graphs ask of a checkpoint, without one. */
import { imaginedWeights, type WeightSource } from "../../../engine/models/weight-source.ts";
import { configureGraphs } from "../../support/engine/shipped-models.ts";

export function countParameters(config: unknown): number {
  const numRequested = new Map<string, number>();
  const weights = countingInto(numRequested);
  const graphs = configureGraphs(config, { dtype: "float32", device: "cpu", maxModelLen: 2048 });
  graphs.buildDecoder(weights);
  graphs.buildVisionEncoder(weights);
  return [...numRequested.values()].reduce((sum, count) => sum + count, 0);
}

/** Every tensor exists except a head, which is the embeddings if the configuration ties both. */
function countingInto(numRequested: Map<string, number>): WeightSource {
  const count = (name: string, shape: readonly number[]): void => {
    numRequested.set(
      name,
      shape.reduce((product, size) => product * size, 1),
    );
  };
  return {
    ...imaginedWeights,
    has: (name) => !name.endsWith("lm_head.weight"),
    prepared(request) {
      const tensors = imaginedWeights.prepared(request);
      count(request.sources.join(), tensors.weight.shape);
      return tensors;
    },
    stored(name, shape) {
      count(name, shape);
      return imaginedWeights.stored(name, shape);
    },
  };
}
