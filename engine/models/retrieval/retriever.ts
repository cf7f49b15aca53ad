/** Retrieval models such as ColQwen: a model whose head is a layer that projects the state of every token. */
import { EngineError } from "../../contract/errors.ts";
import type { Checkpoint } from "../../weights/checkpoint.ts";
import type { StoredTensor } from "../../weights/stored-tensor.ts";

type RetrievalCheckpoint = Pick<Checkpoint, "config" | "tensors">;

/** The models inside, by the architecture of the retrieval model; null: `vlm_config` says. */
const models: Readonly<Record<string, string | null>> = {
  ColQwen2ForRetrieval: null,
  ColQwen3: "Qwen3VLForConditionalGeneration",
  OpsColQwen3Model: "Qwen3VLForConditionalGeneration",
  ColQwen3_5: "Qwen3_5ForConditionalGeneration",
};
/** By `model_type` of `vlm_config`, which has no architecture. */
const modelsInside: Readonly<Record<string, string>> = {
  qwen2_vl: "Qwen2VLForConditionalGeneration",
  qwen2_5_vl: "Qwen2_5_VLForConditionalGeneration",
};

/** Names of the layer in transformers, and in colpali-engine. */
const projectionNames = ["embedding_proj_layer", "custom_text_proj"];

/**
 * The checkpoint of the model inside, with the projection beside it; any other checkpoint as it is.
 *
 * @throws EngineError `unsupported_model` for a retrieval model with another model inside.
 */
export function withModelOfRetriever<Given extends RetrievalCheckpoint>(checkpoint: Given): Given {
  const { architectures, vlm_config: inside } = (checkpoint.config ?? {}) as Fields;
  const [architecture] = Array.isArray(architectures) ? (architectures as unknown[]) : [];
  if (typeof architecture !== "string" || !Object.hasOwn(models, architecture)) return checkpoint;
  const model = models[architecture] ?? modelInside(architecture, inside);
  const config = { ...(inside ?? (checkpoint.config as object)), architectures: [model] };
  return { ...checkpoint, config, tensors: withoutWrapper(checkpoint.tensors) };
}

interface Fields {
  readonly architectures?: unknown;
  readonly vlm_config?: { readonly model_type?: unknown };
}

function modelInside(architecture: string, inside: Fields["vlm_config"]): string {
  const type = inside?.model_type;
  const model = typeof type === "string" && Object.hasOwn(modelsInside, type) ? modelsInside[type] : undefined;
  if (model !== undefined) return model;
  const known = Object.keys(modelsInside).join(", ");
  const message = `The model_type of vlm_config of ${architecture} is ${JSON.stringify(type)}; supported are: ${known}.`;
  throw new EngineError("unsupported_model", message);
}

/** Names as the model inside has them alone: without `vlm.` in front, and with `model.` where it was left out. */
function withoutWrapper(tensors: Checkpoint["tensors"]): Checkpoint["tensors"] {
  const inside = [...tensors.values()].map((tensor) => renamed(tensor, tensor.name.replace(/^vlm\./u, "")));
  const isBare = !inside.some(({ name }) => name.startsWith("model."));
  const named = inside.map((tensor) => {
    const lacksPrefix = isBare && /^(?:language_model|visual)\./u.test(tensor.name);
    return lacksPrefix ? renamed(tensor, `model.${tensor.name}`) : tensor;
  });
  return new Map(named.map((tensor) => [tensor.name, tensor]));
}

function renamed(tensor: StoredTensor, name: string): StoredTensor {
  return name === tensor.name ? tensor : { ...tensor, name };
}

/** A linear layer: tensors `{name}.weight` [size, hiddenSize], and `{name}.bias` if it has one. */
export interface Projection {
  readonly name: string;
  readonly size: number;
  readonly hasBias: boolean;
}

/** Null for a model without. */
export function projectionOf({ tensors }: Pick<Checkpoint, "tensors">): Projection | null {
  const name = projectionNames.find((candidate) => tensors.has(`${candidate}.weight`));
  if (name === undefined) return null;
  return { name, size: tensors.get(`${name}.weight`)!.shape[0] ?? 0, hasBias: tensors.has(`${name}.bias`) };
}
