/** Reads the states of an exported decoder's recurrent layers and checks them against config.json. */
import { EngineError } from "../../contract/errors.ts";
import type { ExportedState, RecurrentShape } from "../built-model.ts";
import { elementTypeIn, requireShape, requireValue, type OnnxFile } from "./onnx-file.ts";

const convolutionName = /^past_conv\.(\d+)$/;

/**
 * For each recurrent layer, as the file numbers them, the inputs of its convolution and its matrices, if it has them.
 * Exports keep as many inputs of the convolution as its kernel has, or one fewer: those before the current token.
 *
 * @throws EngineError `unsupported_model` and `invalid_checkpoint` that name the file and what is expected of it.
 */
export function readStates(decoder: OnnxFile, recurrent: RecurrentShape): ExportedState[] {
  const { numLayers, numChannels, kernelSize, matrices } = recurrent;
  const layers = [...decoder.inputs.keys()].flatMap((name) => convolutionName.exec(name)?.[1] ?? []).map(Number);
  if (layers.length !== numLayers) {
    throw new EngineError(
      "invalid_checkpoint",
      `${decoder.name} has states of ${layers.length} recurrent layers (past_conv.0 and so on); config.json implies ${numLayers}.`,
    );
  }
  return layers
    .sort((left, right) => left - right)
    .flatMap((layer) => {
      const numInputs =
        decoder.inputs.get(`past_conv.${layer}`)?.shape?.[2] === kernelSize - 1 ? kernelSize - 1 : kernelSize;
      const inputs = readState(decoder, `_conv.${layer}`, [numChannels, numInputs]);
      if (matrices === null) return [inputs];
      const { numHeads, keyDim, valueDim } = matrices;
      return [inputs, readState(decoder, `_recurrent.${layer}`, [numHeads, keyDim, valueDim])];
    });
}

function readState(decoder: OnnxFile, name: string, shape: readonly number[]): ExportedState {
  const input = requireValue(decoder, "inputs", `past${name}`);
  const output = requireValue(decoder, "outputs", `present${name}`);
  requireShape(decoder, input, [null, ...shape]);
  requireShape(decoder, output, [null, ...shape]);
  const elementType = elementTypeIn(decoder, input, ["float32", "float16"]);
  elementTypeIn(decoder, output, [elementType]);
  return { input: input.name, output: output.name, elementType, shape };
}
