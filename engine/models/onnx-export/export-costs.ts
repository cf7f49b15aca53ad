/** Memory of an export: weights by the sizes of its files, runs by an estimate. */
import { runCosts, type ModelCosts } from "../model-costs.ts";
import { imaginedWeights } from "../weight-source.ts";
import { maxExportedLogitsRows } from "./bounded-logits.ts";
import type { OpenedExport } from "./open-export.ts";

/**
 * Exports compute the same as Fovea's own graph of the model, one sequence per run. In addition they hold the scores of
 * all heads, the keys and values repeated for each head, and the logits of every token of a run.
 */
export function exportCosts({ decoder, embedTokens, visionEncoder, graphs, model }: OpenedExport): ModelCosts {
  const runs = runCosts(graphs, graphs.buildDecoder(imaginedWeights), graphs.buildVisionEncoder(imaginedWeights));
  const { hiddenSize, headDim, vocabSize, numLogitsToKeepRank, padding, keepsImagesWhole = false } = model.decoder;
  const float = Float32Array.BYTES_PER_ELEMENT;
  const mostLogitsRows = keepsImagesWhole ? Infinity : maxExportedLogitsRows(vocabSize);
  const mostRows = numLogitsToKeepRank === null ? mostLogitsRows : 1;
  return {
    weights: {
      embedding: embedTokens?.byteLength ?? 0,
      decoder: decoder.byteLength,
      visionEncoder: visionEncoder?.byteLength ?? 0,
    },
    adapterBytes: 0,
    experts: null,
    decoderRunBytes({ numSequences, numTokens }) {
      // Sequences that decode together have their keys and values side by side, with no more bytes than the weights.
      const together = numSequences > 1 && padding !== null ? 2 * decoder.byteLength : 0;
      const scores = 2 * Math.ceil(hiddenSize / headDim) * numTokens * graphs.maxModelLen * float;
      const repeated = 2 * graphs.maxModelLen * hiddenSize * float;
      const logits = Math.min(numTokens, mostRows) * vocabSize * float;
      return runs.decoderRunBytes({ numSequences: 1, numTokens }) + scores + repeated + logits + together;
    },
    visionRunBytes: runs.visionRunBytes,
  };
}
