/**
 * Opens a ready-made export: the ONNX files of hub repositories, in the layout of transformers.js, served unchanged.
 * Configuration, prompts and pictures are those of the model's own definition; only the graphs differ.
 */
import { createHash } from "node:crypto";

import { EngineError } from "../../contract/errors.ts";
import type { Checkpoint } from "../../weights/checkpoint.ts";
import { chooseOnnxFiles, onnxFolder, resolveOnnxDtype } from "../../weights/onnx-variants.ts";
import type { BuiltModel, DecoderExport } from "../built-model.ts";
import { configureGraphs, type GraphOptions, type ModelGraphs } from "../model-graphs.ts";
import type { ResolvedDtype } from "../precision.ts";
import { readDecoderInterface } from "./decoder-interface.ts";
import { openOnnxFile, type OnnxFile } from "./onnx-file.ts";
import { readVisionInterface } from "./vision-interface.ts";

export interface OpenedExport {
  readonly decoder: OnnxFile;
  /** Null for a decoder of token ids. */
  readonly embedTokens: OnnxFile | null;
  /** Null for a model that does not accept images. */
  readonly visionEncoder: OnnxFile | null;
  readonly model: BuiltModel & { readonly decoder: DecoderExport };
  readonly dtype: ResolvedDtype;
  /** The graphs that the model's own definition would build instead. */
  readonly graphs: ModelGraphs;
}

/** Increase it when the same files compute other numbers. */
const EXPORT_VERSION = 1;

/**
 * @param fileNames Files in the checkpoint's `onnx/`.
 * @throws EngineError `invalid_configuration` for a dtype that the export lacks or a length above the model's,
 * `invalid_checkpoint` for files that are missing or contradict config.json, `unsupported_model` for another layout,
 * `aborted`.
 */
export async function openExport(
  checkpoint: Checkpoint,
  fileNames: readonly string[],
  options: GraphOptions & { readonly signal?: AbortSignal },
): Promise<OpenedExport> {
  // The dtype selects files, and the runtime keeps their cache; the precisions of Fovea's own graphs do not matter.
  const { maxModelLen, definition } = options;
  const own = { dtype: "float32", device: "cpu", maxModelLen, definition } as const;
  const graphs = configureGraphs(checkpoint.config, own);
  const { model } = graphs;
  const chosen = chooseOnnxFiles(fileNames, options);
  const openPart = async (name: string | null): Promise<OnnxFile | null> =>
    name === null ? null : openOnnxFile(checkpoint.folder, name);
  const decoder = await openOnnxFile(checkpoint.folder, chosen.decoder);
  const embedTokens = await openPart(chosen.embedTokens);
  const visionEncoder = model.visionEncoder === null ? null : await openPart(chosen.visionEncoder);
  if (model.visionEncoder !== null && visionEncoder === null) {
    throw new EngineError(
      "invalid_checkpoint",
      `The export lacks ${onnxFolder}/vision_encoder.onnx, which ${definition.architecture} needs together with ${decoder.name}.`,
    );
  }
  const interfaces = {
    decoder: readDecoderInterface(model, decoder, embedTokens),
    visionEncoder:
      model.visionEncoder === null || visionEncoder === null
        ? null
        : readVisionInterface(model.visionEncoder, model.decoder.hiddenSize, visionEncoder),
  };
  const parts = [decoder, embedTokens, visionEncoder].filter((part) => part !== null);
  const { signal } = options;
  const files = parts.flatMap((part) => part.files);
  const contentHash = await checkpoint.contentHash({ files, ...(signal && { signal }) });
  return {
    decoder,
    embedTokens,
    visionEncoder,
    dtype: resolveOnnxDtype(options),
    graphs,
    model: {
      architecture: definition.architecture,
      externalDataFolder: undefined,
      ...interfaces,
      maxPositionEmbeddings: model.maxPositionEmbeddings,
      imageTokenId: model.imageTokenId,
      contentHash: createHash("sha256")
        .update(JSON.stringify(["export", EXPORT_VERSION, contentHash]))
        .digest("hex"),
    },
  };
}
