/** The shape of all speed benches: SmolLM2-135M's, with random weights. */
export const shape = {
  numLayers: 30,
  hiddenSize: 576,
  numHeads: 9,
  numKvHeads: 3,
  headDim: 64,
  intermediateSize: 1536,
  vocabSize: 49_152,
  maxPositionEmbeddings: 2048,
  ropeTheta: 100_000,
  rmsNormEps: 1e-5,
} as const;

export type DecoderSize = Readonly<Record<keyof typeof shape, number>>;

/** Decoders of LLaVA 1.5 7B's shape and of TinyLlama 1.1B's, with the vocabulary of the shape above. */
export const largeShapes = {
  "7b": {
    ...shape,
    numLayers: 32,
    hiddenSize: 4096,
    numHeads: 32,
    numKvHeads: 32,
    headDim: 128,
    intermediateSize: 11_008,
    maxPositionEmbeddings: 4096,
  },
  "1b": {
    ...shape,
    numLayers: 22,
    hiddenSize: 2048,
    numHeads: 32,
    numKvHeads: 4,
    intermediateSize: 5632,
    maxPositionEmbeddings: 4096,
  },
} as const satisfies Readonly<Record<string, DecoderSize>>;

type LayerWeight = readonly [name: string, ggufName: string, rows: number, columns: number];

/** Rows and columns of every linear weight of one layer, under Hugging Face's and llama.cpp's names. */
export function layerWeightsOf(size: DecoderSize): readonly LayerWeight[] {
  return [
    ["self_attn.q_proj", "attn_q", size.numHeads * size.headDim, size.hiddenSize],
    ["self_attn.k_proj", "attn_k", size.numKvHeads * size.headDim, size.hiddenSize],
    ["self_attn.v_proj", "attn_v", size.numKvHeads * size.headDim, size.hiddenSize],
    ["self_attn.o_proj", "attn_output", size.hiddenSize, size.numHeads * size.headDim],
    ["mlp.gate_proj", "ffn_gate", size.intermediateSize, size.hiddenSize],
    ["mlp.up_proj", "ffn_up", size.intermediateSize, size.hiddenSize],
    ["mlp.down_proj", "ffn_down", size.hiddenSize, size.intermediateSize],
  ];
}

/** Approximately normally distributed numbers (sum of three uniforms), from a 32-bit generator with a fixed seed. */
export function fillRandom(target: Float32Array, standardDeviation: number, seed: number): void {
  let state = seed >>> 0 || 1;
  const next = (): number => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 4294967296;
  };
  for (let index = 0; index < target.length; index++) {
    target[index] = (next() + next() + next() - 1.5) * 2 * standardDeviation;
  }
}

/** Texts of the generated vocabulary. The first 256 are the byte alphabet, so that any text can be tokenized. */
export function vocabulary(): string[] {
  const bytes = byteAlphabet();
  const rest = Array.from({ length: shape.vocabSize - bytes.length - 2 }, (_, index) => `token${index}`);
  return ["<s>", "</s>", ...bytes, ...rest];
}

/** GPT-2's printable stand-ins for the 256 bytes. */
function byteAlphabet(): string[] {
  const printable = (byte: number): boolean =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
  let shifted = 256;
  return Array.from({ length: 256 }, (_, byte) => String.fromCodePoint(printable(byte) ? byte : shifted++));
}
