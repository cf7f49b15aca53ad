/** Wire schemas of the parts of a message that are documents, in the forms that clients send. */
import { z } from "zod";

import { fileReference, toReference } from "../references.ts";
import { boundedText, fileId, MAX_NAME_LENGTH, name, text } from "./wire-types.ts";

const dataRule = "must be a string: a PDF file in base64, as a data URL or as the URL of one";
const urlRule = 'must be an object: {"url": …}';

const given = {
  filename: name.nullish(),
  file_data: z.string(dataRule).nullish(),
  file_id: fileId.nullish(),
};

interface GivenFile {
  readonly file_data?: string | null | undefined;
  readonly file_url?: string | null | undefined;
  readonly file_id?: string | null | undefined;
}

function hasFile({ file_data, file_url, file_id }: GivenFile): boolean {
  return [file_data, file_url, file_id].some((value) => typeof value === "string");
}

const missing = { path: ["file_data"], message: dataRule, abort: true };

/** Of Responses. */
export const inputFile = z
  .object({
    type: z.literal("input_file"),
    ...given,
    file_url: text.nullish(),
    // Selects a resolution in OpenAI's models; `media_io_kwargs` does here.
    detail: boundedText(MAX_NAME_LENGTH).nullish(),
  })
  .refine(hasFile, missing);

export const documentParts = [
  z.object({
    type: z.literal("file"),
    file: z.object(given, 'must be an object: {"file_data": …}').refine(hasFile, missing),
  }),
  inputFile,
  // Of Mistral's service.
  z.object({
    type: z.literal("document_url"),
    document_url: z.union([text.transform((url) => ({ url })), z.object({ url: text }, urlRule)], urlRule),
    document_name: name.nullish(),
  }),
] as const;

/** @param file With one of its fields, as the schemas require. */
export function documentReference({ file_data: data, file_url: url, file_id: id }: GivenFile): string {
  const given = data ?? url;
  return typeof given === "string" ? toReference(given, "application/pdf") : fileReference(id ?? "");
}

/** The field that `documentReference` reads, for errors. */
export function documentField({ file_data: data, file_url: url }: GivenFile): keyof GivenFile {
  if (typeof data === "string") return "file_data";
  return typeof url === "string" ? "file_url" : "file_id";
}

/** A part without a type is recognised by its key. */
export function withTypeOfDocument(part: object): object {
  if ("document_url" in part) return { ...part, type: "document_url" };
  return "file" in part ? { ...part, type: "file" } : part;
}
