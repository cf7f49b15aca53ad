/**
 * Decoders with mixtures of experts against a dense one with as much work for each token: what routing costs, and reading
 * more weights as more tokens choose more experts.
 */
import { join } from "node:path";

import { decodeTokensPerSecond, prefillTokensPerSecond, withEngine } from "./engine-throughput.ts";
import { comparedFigure, median, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import {
  benchDtypes,
  benchFolder,
  concurrencies,
  contextTokens,
  decodeTokens,
  numThreads,
  prefillTokens,
} from "./settings.ts";
import type { BenchDtype } from "./settings.ts";
import { shape } from "./shape.ts";
import type { DecoderSize } from "./shape.ts";
import { decoderConfig, decoderTensors, writeCheckpoint } from "./write-checkpoint.ts";
import type { CheckpointTensor } from "./write-checkpoint.ts";

const size: DecoderSize = {
  ...shape,
  numLayers: 12,
  hiddenSize: 1024,
  numHeads: 16,
  numKvHeads: 4,
  intermediateSize: 2048,
};

interface Mixture {
  readonly numExperts: number;
  readonly numActive: number;
}

/** A token's experts have the width of the dense decoder's perceptron together. */
const mixtures: readonly Mixture[] = [
  { numExperts: 64, numActive: 4 },
  { numExperts: 128, numActive: 8 },
];

function tensorsOf(mixture: Mixture | null): CheckpointTensor[] {
  const { hiddenSize, headDim, numLayers } = size;
  const tensors = decoderTensors("model.", size).filter(({ name }) => mixture === null || !name.includes(".mlp."));
  for (let layer = 0; layer < numLayers; layer++) {
    const prefix = `model.layers.${layer}`;
    for (const norm of ["q_norm", "k_norm"]) {
      tensors.push({ name: `${prefix}.self_attn.${norm}.weight`, shape: [headDim], standardDeviation: null });
    }
    if (mixture === null) continue;
    const { numExperts } = mixture;
    const matrix = (name: string, rows: number, columns: number): void => {
      const standardDeviation = 0.8 / Math.sqrt(columns);
      tensors.push({ name: `${prefix}.mlp.${name}.weight`, shape: [rows, columns], standardDeviation });
    };
    matrix("gate", numExperts, hiddenSize);
    for (let expert = 0; expert < numExperts; expert++) {
      matrix(`experts.${expert}.gate_proj`, expertWidth(mixture), hiddenSize);
      matrix(`experts.${expert}.up_proj`, expertWidth(mixture), hiddenSize);
      matrix(`experts.${expert}.down_proj`, hiddenSize, expertWidth(mixture));
    }
  }
  return tensors;
}

function expertWidth({ numActive }: Mixture): number {
  return size.intermediateSize / numActive;
}

/** @param mixture Null for the dense decoder. */
function writeDecoder(mixture: Mixture | null): string {
  const name = mixture === null ? "dense" : `${mixture.numExperts}-experts`;
  const experts = mixture !== null && {
    num_experts: mixture.numExperts,
    num_experts_per_tok: mixture.numActive,
    moe_intermediate_size: expertWidth(mixture),
    norm_topk_prob: true,
  };
  return writeCheckpoint(join(benchFolder, `qwen3-${name}-random`), {
    config: {
      ...decoderConfig(size),
      architectures: [mixture === null ? "Qwen3ForCausalLM" : "Qwen3MoeForCausalLM"],
      model_type: mixture === null ? "qwen3" : "qwen3_moe",
      head_dim: size.headDim,
      ...experts,
    },
    tensors: tensorsOf(mixture),
    chatTemplate: "{% for message in messages %}{{ message['content'] }}{% endfor %}",
    addedTokens: {},
  });
}

/** Tokens per second: of a prompt, and decoded by each number of sequences. */
function measureSpeeds(mixture: Mixture | null, dtype: BenchDtype, salt: number): Promise<readonly number[]> {
  const options = { model: writeDecoder(mixture), dtype, numThreads, cacheFolder: join(benchFolder, "cache") };
  return withEngine(options, async (engine) => {
    await decodeTokensPerSecond(engine, 1, contextTokens, decodeTokens); // Warms up.
    const speeds = [await prefillTokensPerSecond(engine, prefillTokens, salt)];
    for (const concurrency of concurrencies) {
      speeds.push(await decodeTokensPerSecond(engine, concurrency, contextTokens, decodeTokens));
    }
    return speeds;
  });
}

const names = [`prefill of ${prefillTokens}`, ...concurrencies.map((concurrency) => `decode, ${concurrency} at once`)];

export async function benchExperts(numRounds: number): Promise<Figure[]> {
  const figures: Figure[] = [];
  for (const dtype of benchDtypes) {
    const sides = [null, ...mixtures].map((mixture) => ({ mixture, rounds: [] as (readonly number[])[] }));
    for (let round = 0; round < numRounds; round++) {
      for (const { mixture, rounds } of sides) rounds.push(await measureSpeeds(mixture, dtype, round));
      reportProgress(`${dtype}, round ${round + 1} of ${numRounds}`);
    }
    const [dense, ...others] = sides;
    for (const { mixture, rounds } of others) {
      for (const [index, name] of names.entries()) {
        const [ours, theirs] = [rounds, dense!.rounds].map((all) => all.map((speeds) => speeds[index]!));
        const label = `${dtype}, ${mixture!.numActive} of ${mixture!.numExperts} experts, ${name}`;
        figures.push(
          comparedFigure(label, "tokens/s", ours!, theirs!),
          plainFigure("  of the dense decoder's speed", "", [median(ours!.map((value, at) => value / theirs![at]!))]),
        );
      }
    }
  }
  return figures;
}
