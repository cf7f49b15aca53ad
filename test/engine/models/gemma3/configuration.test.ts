/** Configurations of Gemma 3. */
import { testRefusals } from "../refused-configurations.ts";

const gemma3 = { architectures: ["Gemma3ForCausalLM"], hidden_size: 64 };

testRefusals([
  [{ ...gemma3, attn_logit_softcapping: 50 }, "config.json: attn_logit_softcapping = 50 is not supported"],
  [
    { ...gemma3, use_bidirectional_attention: true },
    "config.json: use_bidirectional_attention = true is not supported",
  ],
  [{ ...gemma3, attention_bias: true }, "config.json: attention_bias = true is not supported"],
  [{ ...gemma3, layer_types: ["full_attention"] }, 'config.json: layer_types = ["full_attention"] is not supported'],
  [
    { ...gemma3, num_hidden_layers: 1, layer_types: ["chunked_attention"] },
    'config.json: layer_types = "chunked_attention" is not supported',
  ],
  [
    { architectures: ["Gemma3ForConditionalGeneration"], text_config: gemma3, mm_tokens_per_image: 100 },
    "config.json: mm_tokens_per_image = 100 is not supported: expected the square of a number by which 14",
  ],
  [
    { architectures: ["Gemma3ForConditionalGeneration"], text_config: { model_type: "gemma2" } },
    'config.json: text_config.model_type = "gemma2" is not supported',
  ],
]);
