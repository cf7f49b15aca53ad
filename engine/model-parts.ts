/** The package's entry `fovea/models`: the parts of which models of one's own are made, with those of pipelines. */
export * from "./pipeline-parts.ts";
export { refuseOtherThan, unsupportedField } from "./models/config-field.ts";
export { parseDecoderConfig, parseTextConfig } from "./models/llama/config.ts";
export type { DecoderConfig } from "./models/llama/config.ts";
export { buildDecoderGraph } from "./models/llama/decoder-graph.ts";
export { decoderDimensions } from "./models/llama/definition.ts";
export { llavaInputs } from "./models/llava/processor.ts";
export type { ConfiguredModel, ModelDefinition } from "./models/model-definition.ts";
