/** Configurations with values of a wrong type, which no model accepts. */
import { expect, test } from "vitest";

import { findModelDefinition } from "../../support/engine/shipped-models.ts";
import { errorOf } from "./refused-configurations.ts";

const llama = { architectures: ["LlamaForCausalLM"] };

test.for([
  { config: { ...llama, hidden_size: "64" }, message: 'config.json: hidden_size is "64"; expected a number.' },
  { config: { ...llama, num_hidden_layers: 0 }, message: "config.json: num_hidden_layers is 0; expected at least 1." },
  {
    config: { architectures: ["LlavaForConditionalGeneration"], text_config: { vocab_size: 1.5 } },
    message: "config.json: text_config.vocab_size is 1.5; expected an integer.",
  },
  {
    config: { architectures: [] },
    message:
      'config.json: architectures is a list of 0 elements; expected a list with the name of the model\'s class, such as ["LlamaForCausalLM"].',
  },
  { config: "text", message: 'config.json: it is "text"; expected an object.' },
])("an invalid checkpoint: $message", ({ config, message }) => {
  const error = errorOf(() => findModelDefinition(config).configure(config));
  expect(error.code).toBe("invalid_checkpoint");
  expect(error.message).toContain(message);
});
