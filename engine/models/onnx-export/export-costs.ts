/** What an export's weights and runs will take: the former by the sizes of its files, the latter by an estimate. */
import { maxExportedLogitsRows } from "./bounded-logits.ts";
import { runCosts, type ModelCosts } from "../model-costs.ts";
import { imaginedWeights } from "../weight-source.ts";
import type { OpenedExport } from "./open-export.ts";

/**
 * Exports compute what our own graph of the model does, one sequence a run; beside that they have the scores of all
 * heads and the keys and values repeated for each in memory, and logits of every token of a run.
 */
export function exportCosts({ decoder, embedTokens, visionEncoder, graphs, model }: OpenedExport): ModelCosts {
  const runs = runCosts(graphs, graphs.buildDecoder(imaginedWeights), graphs.buildVisionEncoder(imaginedWeights));
  const { hiddenSize, headDim, vocabSize, numLogitsToKeepRank, padding } = model.decoder;
  const float = Float32Array.BYTES_PER_ELEMENT;
  const mostRows = numLogitsToKeepRank === null ? maxExportedLogitsRows(vocabSize) : 1;
  return {
    weights: {
      embedding: embedTokens?.byteLength ?? 0,
      decoder: decoder.byteLength,
      visionEncoder: visionEncoder?.byteLength ?? 0,
    },
    decoderRunBytes({ numSequences, numTokens }) {
      // Sequences that decode together have their keys and values side by side: no more bytes than there are weights.
      const together = numSequences > 1 && padding !== null ? 2 * decoder.byteLength : 0;
      const scores = 2 * Math.ceil(hiddenSize / headDim) * numTokens * graphs.maxModelLen * float;
      const repeated = 2 * graphs.maxModelLen * hiddenSize * float;
      const logits = Math.min(numTokens, mostRows) * vocabSize * float;
      return runs.decoderRunBytes({ numSequences: 1, numTokens }) + scores + repeated + logits + together;
    },
    visionRunBytes: runs.visionRunBytes,
  };
}
