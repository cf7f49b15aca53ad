/** The package's entry `fovea/pipelines`: the parts of which pipelines are made. */
export { EngineError } from "./contract/errors.ts";
export type { Pipeline, PipelineModule, PipelineParams, PipelineWeights } from "./models/pipelines/pipeline.ts";
export { readFolderJson, readPreprocessor, requireTextParam } from "./models/pipelines/vision-folder.ts";
export type {
  DecoderDimensions,
  ImageSpelling,
  ProcessorContext,
  VisionEncoderDefinition,
} from "./models/model-definition.ts";
export { createPictureEncoder } from "./models/vision-transformer/picture-encoder.ts";
export type { PictureEncoderOptions } from "./models/vision-transformer/picture-encoder.ts";
export { clipTower } from "./models/clip/vision-tower.ts";
export { siglipTower } from "./models/siglip/vision-tower.ts";
export type { VisionTower } from "./models/vision-transformer/vision-tower.ts";
export type { VisionConfig } from "./models/vision-transformer/config.ts";
export { parseBlip2Config } from "./models/blip2/config.ts";
export { buildBlip2Vision } from "./models/blip2/vision-tower.ts";
export { buildQFormer } from "./models/blip2/q-former.ts";
export { applyActivation } from "./models/activation.ts";
export { parameter, projectorContext } from "./models/graph-context.ts";
export type { GraphContext } from "./models/graph-context.ts";
export { linear } from "./models/linear.ts";
export type { LinearLayer } from "./models/linear.ts";
export { findPrefix } from "./models/weight-source.ts";
export { allOrNone } from "./concurrent-work.ts";
export { createDummyInputsBuilder } from "./multimodal/dummy-inputs.ts";
export type { DummyInputs, DummyInputsBuilder } from "./multimodal/dummy-inputs.ts";
export { embeddingsGrid } from "./multimodal/embeddings-grid.ts";
export { fieldConfig } from "./multimodal/field-config.ts";
export type { BatchedTensor, FieldConfig } from "./multimodal/field-config.ts";
export type {
  EncodedImage,
  MultiModalInputs,
  MultiModalProcessor,
  PixelProcessor,
  ProcessedBatch,
  ProcessorOptions,
  ShownVideo,
  UpdateItem,
  VideoInputs,
  VideoItem,
} from "./multimodal/multimodal-processor.ts";
export { pictureFields } from "./multimodal/picture-fields.ts";
export type { PixelProgram, PixelTools, RgbImage } from "./multimodal/pixel-program.ts";
export type { ItemTensor } from "./multimodal/processed-item.ts";
export type { ImageSize, ProcessingInfo } from "./multimodal/processing-info.ts";
export { invalidOption, unsupportedOption } from "./multimodal/processor-options.ts";
export { promptIndexTargets, selectTokenIds } from "./multimodal/prompt-update.ts";
export type {
  PromptInsertion,
  PromptReplacement,
  PromptUpdate,
  PromptUpdateDetails,
} from "./multimodal/prompt-update.ts";
export type { GraphBuilder } from "./graph/graph-builder.ts";
export type { Value } from "./graph/value.ts";
export { multiHeadAttention } from "./graph/contrib-ops.ts";
export {
  add,
  cast,
  concat,
  expand,
  layerNormalization,
  multiply,
  reshape,
  shapeOf,
  slice,
  split,
  transpose,
} from "./graph/standard-ops.ts";
