/** Wire schemas of the parts of a message that are images, in the forms that clients send. */
import { z } from "zod";

import { fileReference } from "../references.ts";
import { boundedList, boundedText, fileId, MAX_NAME_LENGTH, name, text } from "./wire-types.ts";

/** Patches of the longest side that decoders accept. */
const MAX_GRID_SIDE = 16_384;
const GRID_AXES = 3;

/** Selects a resolution in OpenAI's models; ours have only one. */
const detail = boundedText(MAX_NAME_LENGTH).nullish();
/** The client's own name for a picture, which later requests can send instead of the picture. */
const uuid = name.nullish();

const urlRule = 'must be an object: {"url": …}';
const referenceRule = "must be a string: the URL of an image, or a data URL";
const embedsRule =
  'must be a string: an .npy or safetensors file in base64, or a reference to one; or {"image_embeds": …, "image_grid_thw": [1, rows, columns]}';
const gridRule = `must be a list of three integers from 1 to ${MAX_GRID_SIDE}: 1, rows and columns of patches`;

const gridSide = z.int(gridRule).min(1, gridRule).max(MAX_GRID_SIDE, gridRule);
/** vLLM's form for models that need the grid of a picture's patches. */
const imageEmbeds = z.strictObject({
  image_embeds: text,
  image_grid_thw: boundedList(gridSide, GRID_AXES, gridRule).min(GRID_AXES, gridRule).nullish(),
});

/** Of Responses; also sent in chat completions. */
export const inputImage = z
  .object({
    type: z.literal("input_image"),
    image_url: z.string(referenceRule).nullish(),
    /** Of an uploaded file. */
    file_id: fileId.nullish(),
    detail,
    uuid,
  })
  .refine(
    (part) => isAnyGiven(part.image_url, part.file_id, part.uuid),
    missing(`${referenceRule}; null is allowed only with a file_id or a uuid`),
  );

/** A plain string is the form of Mistral's service, and of vLLM's beside a uuid. */
const imageUrl = z.union([text.transform((url) => ({ url })), z.object({ url: text, detail }, urlRule)], urlRule);

export const imageParts = [
  z
    .object({ type: z.literal("image_url"), image_url: imageUrl.nullish(), uuid })
    .refine((part) => isAnyGiven(part.image_url, part.uuid), missing(`${urlRule}; null is allowed only with a uuid`)),
  inputImage,
  z.object({ type: z.literal("image_embeds"), image_embeds: z.union([text, imageEmbeds], embedsRule) }),
] as const;

type GivenImage = Pick<z.output<typeof inputImage>, "image_url" | "file_id">;

/** Null for a picture that is expected to be cached under its uuid. */
export function imageReference({ image_url: url, file_id: id }: GivenImage): string | null {
  return url ?? (typeof id === "string" ? fileReference(id) : null);
}

/** The field that `imageReference` reads, for errors. */
export function imageField({ image_url: url, file_id: id }: GivenImage): string {
  return typeof url !== "string" && typeof id === "string" ? "file_id" : "image_url";
}

function isAnyGiven(...values: readonly unknown[]): boolean {
  return values.some((value) => value !== null && value !== undefined);
}

function missing(message: string): { path: string[]; message: string; abort: true } {
  return { path: ["image_url"], message, abort: true };
}

/** A part without a type is recognised by its key. */
export function withTypeOfImage(part: object): object {
  if ("image_url" in part) return { ...part, type: "image_url" };
  return "image_embeds" in part ? { ...part, type: "image_embeds" } : part;
}
