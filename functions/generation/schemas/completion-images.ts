/** The `images` of a text completion: the pictures of its prompt's placeholders, in order. A field of Fovea's own. */
import { z } from "zod";

import { contentPart, MAX_PARTS } from "./chat-completion-request.ts";
import { boundedList } from "./wire-types.ts";

const image = z
  .preprocess(
    (value) => (typeof value === "string" ? { type: "image_url", image_url: { url: value } } : value),
    contentPart,
  )
  .refine(({ type }) => type === "image_url" || type === "input_image" || type === "image_embeds", {
    error: "must be an image: a reference, or a part of type image_url, input_image or image_embeds",
    abort: true,
  });

export const completionImages = boundedList(
  image,
  MAX_PARTS,
  "must be a list of images: references, or parts of type image_url",
);
