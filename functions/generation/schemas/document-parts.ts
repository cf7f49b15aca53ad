/** Wire schemas of the parts of a message that are documents, in the forms that clients send. */
import { z } from "zod";

import { boundedText, MAX_NAME_LENGTH, name, text } from "./wire-types.ts";

const dataRule = "must be a string: a PDF file in base64, as a data URL or as the URL of one";
const noStoreOfFiles = "is not supported: send the file itself in file_data";
const urlRule = 'must be an object: {"url": …}';

const given = {
  filename: name.nullish(),
  // Rejected by name, because clients upload files first otherwise.
  file_id: z.null(noStoreOfFiles).optional(),
};

/** Of Responses. */
export const inputFile = z
  .object({
    type: z.literal("input_file"),
    ...given,
    file_data: z.string(dataRule).nullish(),
    file_url: text.nullish(),
    // Selects a resolution in OpenAI's models; `media_io_kwargs` does here.
    detail: boundedText(MAX_NAME_LENGTH).nullish(),
  })
  .refine(({ file_data, file_url }) => typeof file_data === "string" || typeof file_url === "string", {
    path: ["file_data"],
    message: dataRule,
    abort: true,
  });

export const documentParts = [
  z.object({
    type: z.literal("file"),
    file: z.object({ ...given, file_data: z.string(dataRule) }, 'must be an object: {"file_data": …}'),
  }),
  inputFile,
  // Of Mistral's service.
  z.object({
    type: z.literal("document_url"),
    document_url: z.union([text.transform((url) => ({ url })), z.object({ url: text }, urlRule)], urlRule),
    document_name: name.nullish(),
  }),
] as const;

/** Base64 has no colon. */
export function documentReference(data: string): string {
  return /^[a-z][a-z\d+.-]*:/i.test(data.slice(0, 64)) ? data : `data:application/pdf;base64,${data}`;
}

/** A part without a type is recognised by its key. */
export function withTypeOfDocument(part: object): object {
  if ("document_url" in part) return { ...part, type: "document_url" };
  return "file" in part ? { ...part, type: "file" } : part;
}
