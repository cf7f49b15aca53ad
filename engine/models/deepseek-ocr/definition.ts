/**
 * DeepSeek-OCR 1 and 2: SAM and a second encoder turn tiles of a picture and the whole picture into a few features, and a
 * decoder with a mixture of experts reads them.
 */
import { choose } from "../../graph/control-flow-ops.ts";
import { less } from "../../graph/selection-ops.ts";
import { int64Scalar, reshapeTo } from "../../graph/shape-ops.ts";
import { cast, concat, gatherRows, shapeOf, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { branchContext, parameter, projectorContext, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { buildDecoderGraph } from "../llama/decoder-graph.ts";
import { decoderDimensions } from "../llama/definition.ts";
import type { ConfiguredModel, ModelDefinition } from "../model-definition.ts";
import { joinRows } from "../sam/picture-rows.ts";
import { buildSamTower, type SamView } from "../sam/vision-tower.ts";
import { createTileEncoder, embeddings, tiles } from "../tiles/tile-encoder.ts";
import { encodeWithClip } from "./clip-encoder.ts";
import { parseFirstConfig, parseNativeConfig, parseSecondConfig, type OcrConfig } from "./config.ts";
import { ocrImageOptions } from "./image-options.ts";
import { ocrNames, type OcrNames } from "./names.ts";
import { ocrInputs } from "./processor.ts";
import { encodeByQueries } from "./query-encoder.ts";

/**
 * Checkpoints on the hub have none. The model knows no roles and answers one text, in which a picture stands on a line of
 * its own, as in the prompts that DeepSeek publishes.
 */
const chatTemplate =
  "{{ bos_token }}{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}" +
  "{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}{{ '<image>\\n' }}" +
  "{% elif part['type'] == 'text' %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}";

function createDefinition(architecture: string, parse: (json: unknown) => OcrConfig): ModelDefinition {
  return { architecture, images: ocrInputs, chatTemplate, configure: (json) => configureModel(parse(json)) };
}

export const deepseekOcrDefinition = createDefinition("DeepseekOCRForCausalLM", parseFirstConfig);
export const deepseekOcr2Definition = createDefinition("DeepseekOCR2ForCausalLM", parseSecondConfig);
/** In transformers' form. */
export const nativeDeepseekOcr2Definition = createDefinition("DeepseekOcr2ForConditionalGeneration", parseNativeConfig);

function configureModel(config: OcrConfig): ConfiguredModel {
  const { text, sam, images, encoder } = config;
  const { tile, whole, tileFeatures } = images;
  const numImageTokens = tileFeatures ** 2;
  return {
    decoder: decoderDimensions(text),
    maxPositionEmbeddings: text.maxPositionEmbeddings,
    imageTokenId: config.imageTokenId,
    visionEncoder: createTileEncoder({
      numChannels: sam.numChannels,
      imageSize: tile,
      numImageTokens,
      hiddenSize: text.hiddenSize,
      hasProjector: true,
      imageOptions: ocrImageOptions(images),
      largestSizes: (numEmbeddings) =>
        new Map([
          [tiles, Math.floor(numEmbeddings / numImageTokens)],
          [embeddings, numEmbeddings],
        ]),
      moreInputs: [
        { name: "whole_pixel_values", elementType: "float32", shape: [sam.numChannels, whole, whole] },
        { name: "feature_rows", elementType: "int64", shape: [embeddings] },
      ],
      refusesExports: "it has no input for the whole picture beside its tiles",
      embed: (context, pixels, [picture, rows]) =>
        embedViews(context, config, ocrNames(context.weights, encoder.kind === "queries"), {
          tiles: pixels,
          picture: cast(context.graph, "picture.pixels", picture!, context.precision.activations),
          rows: rows!,
        }),
    }),
    buildDecoder(context, maxModelLen) {
      const { decoder: prefix } = ocrNames(context.weights, encoder.kind === "queries");
      buildDecoderGraph(context, { config: text, prefix, headName: "lm_head", acceptsImages: true, maxModelLen });
    },
  };
}

/** The features of all views and the rows between them, in the order of `rows`: [numEmbeddings, hiddenSize]. */
function embedViews(
  context: GraphContext,
  config: OcrConfig,
  names: OcrNames,
  views: { readonly tiles: Value; readonly picture: Value; readonly rows: Value },
): Value {
  const { graph } = context;
  const { sam, images } = config;
  const { hiddenSize } = config.text;
  const none = int64Scalar(graph, 0);
  const numTiles = gatherRows(graph, "tiles.count", shapeOf(graph, "tiles.shape", views.tiles), none);
  const [ofTiles] = choose(graph, "tiles.choice", {
    names: ["tiles.features"],
    condition: less(graph, "tiles.any", none, numTiles),
    chosen: () => {
      const own = branchContext(context);
      const view = { pixels: views.tiles, side: images.tile / sam.patchSize };
      const features = embedView(own, config, names, view, names.queries[0]);
      return [reshapeTo(graph, "tiles.rows", features, ["tileRows", hiddenSize])];
    },
    other: () => {
      const row = projectedRow(context, names.separator, hiddenSize);
      const nothing = slice(graph, "tiles.nothing", row, { axis: 0, start: 0, end: 0 });
      return [reshapeTo(graph, "tiles.rows", nothing, ["tileRows", hiddenSize])];
    },
  });
  const view = { pixels: views.picture, side: images.whole / sam.patchSize };
  const ofPicture = embedView(context, config, names, view, names.queries[1]);
  const behind = [...(images.endsLines ? [names.lineEnd] : []), names.separator];
  const table = concat(
    graph,
    "features",
    [ofTiles, ofPicture, ...behind.map((name) => projectedRow(context, name, hiddenSize))],
    0,
    "numFeatures",
  );
  return gatherRows(graph, "embeddings", table, reshapeTo(graph, "feature_rows.flat", views.rows, [embeddings]));
}

/** [pictures * places, hiddenSize], in the projector's type. */
function embedView(
  context: GraphContext,
  { sam, encoder, projectedSize, text }: OcrConfig,
  names: OcrNames,
  view: SamView,
  queries: string,
): Value {
  const features = buildSamTower(context, sam, names.sam, view);
  const encoded =
    encoder.kind === "queries"
      ? encodeByQueries(context, encoder.layers, { prefix: names.encoder, queries }, features)
      : encodeWithClip(context, encoder.layers, names.encoder, features);
  const projector = projectorContext(context, joinRows(context, "encoded.rows", encoded));
  const layer = { name: names.projector, inFeatures: projectedSize, outFeatures: text.hiddenSize, hasBias: true };
  return linear(projector.context, projector.input, layer, projector.context.precision.vision);
}

/** A learned row of the checkpoint in the projector's type: [1, hiddenSize]. */
function projectedRow(context: GraphContext, name: string, hiddenSize: number): Value {
  const own = { ...context, precision: context.projectorPrecision };
  return reshapeTo(own.graph, `${name}.row`, parameter(own, name, [hiddenSize]), [1, hiddenSize]);
}
