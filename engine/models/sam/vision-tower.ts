/**
 * SAM's image encoder: patches in windows, some layers with the whole picture, and a neck of convolutions; behind it the
 * two convolutions of DeepSeek-OCR, which halve both sides each.
 */
import { reshapeTo } from "../../graph/shape-ops.ts";
import { add, slice } from "../../graph/standard-ops.ts";
import type { Value } from "../../graph/value.ts";
import { parameter, type GraphContext } from "../graph-context.ts";
import { linear } from "../linear.ts";
import { patchesPerSide } from "../vision-transformer/config.ts";
import { encoderLayer, layerNorm, type Attend } from "../vision-transformer/encoder-layers.ts";
import { embedPatches } from "../vision-transformer/patch-embedding.ts";
import type { SamConfig } from "./config.ts";
import { convolve, convolvedSide } from "./convolution.ts";
import { joinRows } from "./picture-rows.ts";
import { relativeAttention } from "./relative-attention.ts";
import { resizeSquare } from "./resized-tables.ts";
import { intoWindows, outOfWindows } from "./windows.ts";

/** Names of a checkpoint's tensors. */
export interface SamNames {
  readonly convolution: string;
  readonly positions: string;
  /** Prefix of the layers, before their numbers. */
  readonly layers: string;
  /** The norms of a layer: before attention, and before the perceptron. */
  readonly norms: readonly [string, string];
  readonly neck: {
    readonly convolutions: readonly [string, string];
    readonly norms: readonly [string, string];
  };
  readonly downsampling: readonly [string, string];
}

/** Pictures of one size. */
export interface SamView {
  /** float [pictures, numChannels, side * patchSize, side * patchSize]. */
  readonly pixels: Value;
  /** In patches. */
  readonly side: number;
}

/** PyTorch's default in SAM's neck, whatever the configuration says of the layers. */
const NECK_NORM_EPSILON = 1e-6;

/** Side of the grid of features of a picture with `side` patches on each side. */
export function samFeatureSide(side: number): number {
  return Math.ceil(Math.ceil(side / 2) / 2);
}

/** Returns [pictures, samFeatureSide(side) ** 2, downsampleChannels[1]], row by row. */
export function buildSamTower(context: GraphContext, config: SamConfig, names: SamNames, view: SamView): Value {
  const [firstNorm, secondNorm] = names.norms;
  const form = { ...samLayers, firstNorm, secondNorm };
  let hidden = embed(context, config, names, view);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const windowSide = config.globalLayers.has(layer) ? null : config.windowSize;
    const attend = attendIn(context, config, view, windowSide);
    hidden = encoderLayer(context, config, `${names.layers}${layer}`, hidden, { attend, form });
  }
  return narrow(context, config, names, hidden, view);
}

const fusedProjection = "qkv";

const samLayers = {
  attention: "attn",
  output: "proj",
  hasQkvBias: true,
  fusedProjection,
  perceptron: ["lin1", "lin2"],
} as const;

/** [pictures * patches, hiddenSize]. */
function embed(context: GraphContext, config: SamConfig, names: SamNames, { pixels, side }: SamView): Value {
  const { hiddenSize: width } = config;
  const ofView = { ...config, imageSize: side * config.patchSize };
  const patches = embedPatches(context, ofView, { name: names.convolution, hasBias: true }, pixels);
  const from = patchesPerSide(config);
  const table = parameter(context, names.positions, [1, from, from, width]);
  const positions = resizeSquare(context, `${names.positions}.of_view`, table, { from, to: side, width });
  const embedded = add(context.graph, "patches.with_positions", patches, positions);
  return joinRows(context, "patches.rows", embedded);
}

/** Attention in windows, or if `windowSide` is null in the whole picture. */
function attendIn(
  context: GraphContext,
  config: SamConfig,
  { pixels, side }: SamView,
  windowSide: number | null,
): Attend {
  const { hiddenSize: width, numHeads } = config;
  const sides = { numHeads, side: windowSide ?? side, tableSide: windowSide ?? patchesPerSide(config) };
  return (name, { query, key, value }) => {
    const inPictures = (part: string, rows: Value): Value =>
      reshapeTo(context.graph, `${name}.${part}.patches`, rows, [pixels.shape[0]!, side ** 2, width]);
    const parts = [inPictures("query", query), inPictures("key", key), inPictures("value", value)] as const;
    if (windowSide === null) {
      const attended = relativeAttention(
        context,
        { query: parts[0], key: parts[1], value: parts[2] },
        { name, ...sides },
      );
      return joinRows(context, `${name}.flat`, attended);
    }
    const grid = { side, windowSide };
    const bias = parameter(context, `${name}.${fusedProjection}.bias`, [3 * width]);
    // A patch of zeros is projected to the biases.
    const absent = reshapeTo(context.graph, `${name}.absent`, bias, [3, 1, 1, width]);
    const inWindows = (part: string, index: 0 | 1 | 2): Value => {
      const own = slice(context.graph, `${name}.${part}.absent`, absent, { axis: 0, start: index, end: index + 1 });
      const row = reshapeTo(context.graph, `${name}.${part}.absent.row`, own, [1, 1, width]);
      return intoWindows(context, `${name}.${part}`, parts[index], grid, row);
    };
    const windows = { query: inWindows("query", 0), key: inWindows("key", 1), value: inWindows("value", 2) };
    const attended = relativeAttention(context, windows, { name, ...sides });
    return joinRows(context, `${name}.flat`, outOfWindows(context, name, attended, grid, parts[0]));
  };
}

/** Neck and convolutions behind it: [pictures, places, downsampleChannels[1]]. */
function narrow(context: GraphContext, config: SamConfig, names: SamNames, hidden: Value, view: SamView): Value {
  const { precision } = context;
  const { hiddenSize, neckChannels, downsampleChannels } = config;
  const [pictures] = view.pixels.shape;
  const norm = (index: 0 | 1, input: Value): Value =>
    layerNorm(
      context,
      { ...config, hiddenSize: neckChannels, layerNormEpsilon: NECK_NORM_EPSILON },
      names.neck.norms[index],
      input,
    );
  const grid = (name: string, rows: Value, side: number, channels: number): Value =>
    reshapeTo(context.graph, `${name}.grid`, rows, [pictures!, side ** 2, channels]);

  const [first, second] = names.neck.convolutions;
  const reduction = {
    name: first,
    inFeatures: hiddenSize,
    outFeatures: neckChannels,
    hasBias: false,
    storedShape: [neckChannels, hiddenSize, 1, 1],
  };
  const reduced = linear(context, hidden, reduction, { kind: "plain", elementType: precision.activations });
  const { side } = view;
  const smoothed = convolve(context, grid(first, norm(0, reduced), side, neckChannels), {
    name: second,
    side,
    outChannels: neckChannels,
    stride: 1,
  });
  let places = { rows: norm(1, smoothed), side, channels: neckChannels };
  for (const [index, name] of names.downsampling.entries()) {
    const options = { name, side: places.side, outChannels: downsampleChannels[index]!, stride: 2 } as const;
    const rows = convolve(context, grid(`${name}.input`, places.rows, places.side, places.channels), options);
    places = { rows, side: convolvedSide(options), channels: options.outChannels };
  }
  return grid("features", places.rows, places.side, places.channels);
}
