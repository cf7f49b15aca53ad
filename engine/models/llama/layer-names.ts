/** How checkpoints name the parts of a decoder of the Llama family, below its prefix. */
export interface LayerNames {
  /** Tensor of the tokens' embeddings. */
  readonly table: string;
  readonly layers: string;
  readonly attentionNorm: string;
  /** Query, key and value in one matrix. */
  readonly jointQkv: string;
  readonly attentionOutput: string;
  readonly perceptronNorm: string;
  /** Gate and up projection in one matrix. */
  readonly jointGates: string;
  /** Whether the rows of the up projection come first in it. Default false. */
  readonly hasUpFirst?: boolean;
  readonly perceptronOutput: string;
  readonly lastNorm: string;
}

export const llamaNames: LayerNames = {
  table: "embed_tokens.weight",
  layers: "layers",
  attentionNorm: "input_layernorm",
  jointQkv: "qkv_proj",
  attentionOutput: "o_proj",
  perceptronNorm: "post_attention_layernorm",
  jointGates: "gate_up_proj",
  perceptronOutput: "down_proj",
  lastNorm: "norm",
};
