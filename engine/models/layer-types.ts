/** Decoders whose layers are of several kinds. */
import { unsupportedField } from "./config-field.ts";

export interface LayerTypeRules<Type extends string> {
  readonly path: string;
  readonly numLayers: number;
  readonly supported: readonly Type[];
  /** Of the supported kinds, those that at least one layer must have. */
  readonly required: readonly Type[];
  /** The value that an error shows, if `layer_types` is not in config.json. Default: the kinds themselves. */
  readonly shown?: unknown;
}

/**
 * The kind of each layer.
 *
 * @throws EngineError `unsupported_model` that names `layer_types`.
 */
export function checkLayerTypes<Type extends string>(
  types: readonly string[],
  { path, numLayers, supported, required, shown = types }: LayerTypeRules<Type>,
): readonly Type[] {
  const refuse = (reason: string): Error => unsupportedField(path, "layer_types", shown, reason);
  if (types.length !== numLayers) throw refuse(`there are ${numLayers} layers`);
  const isSupported = (type: string): type is Type => supported.some((name) => name === type);
  if (!types.every(isSupported)) throw refuse(`supported are ${supported.join(" and ")}`);
  for (const type of required) {
    if (!types.includes(type)) throw refuse(`no layer has ${type}`);
  }
  return types;
}
