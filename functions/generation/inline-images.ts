/**
 * Pictures inside text, as text-generation-webui's multimodal extension spells them:
 * `<img src="data:image/jpeg;base64,…">`, in exactly this form. PNG and WebP are accepted too.
 */
import type { ContentPart } from "../../engine/index.ts";
import { HttpError } from "../http/errors.ts";

const opening = '<img src="data:image/';
const encoding = ";base64,";
const closing = '">';
const acceptedTypes = ["jpeg", "png", "webp"] as const;

/** Longer than the name of any image type. */
const MAX_TYPE_CHARACTERS = 32;
/**
 * A tag that is not in the accepted form is text, unless it has at least so many characters of base64. No text about
 * such tags has that many, and a model must never read a picture as base64.
 */
const MIN_DATA_CHARACTERS = 256;

/**
 * The text and its pictures in order; null if it has no picture. Empty texts are left out. Takes time linear in the
 * text.
 *
 * @param path The field that contains the text, for errors.
 * @throws HttpError 400 for a picture that is not closed, or of a type that is not accepted.
 */
export function splitInlineImages(text: string, path: string): ContentPart[] | null {
  const parts: ContentPart[] = [];
  let textStart = 0;
  let at = text.indexOf(opening);
  while (at !== -1) {
    const tag = readTag(text, at, path);
    if (tag.reference !== null) {
      if (at > textStart) parts.push({ type: "text", text: text.slice(textStart, at) });
      parts.push({ type: "image", reference: tag.reference });
      textStart = tag.end;
    }
    at = text.indexOf(opening, tag.end);
  }
  if (textStart === 0) return null;
  if (textStart < text.length) parts.push({ type: "text", text: text.slice(textStart) });
  return parts;
}

interface Tag {
  /** A `data:` reference; null for a tag that is text. */
  readonly reference: string | null;
  /** Where to search on. Everything before it was read once. */
  readonly end: number;
}

function readTag(text: string, start: number, path: string): Tag {
  const typeStart = start + opening.length;
  const type = /^[\w.+-]*/.exec(text.slice(typeStart, typeStart + MAX_TYPE_CHARACTERS))![0];
  const dataStart = typeStart + type.length + encoding.length;
  if (!text.startsWith(encoding, typeStart + type.length)) return { reference: null, end: typeStart };
  const dataEnd = endOfBase64(text, dataStart);
  const isAccepted = (acceptedTypes as readonly string[]).includes(type);
  const isClosed = text.startsWith(closing, dataEnd) && dataEnd > dataStart;
  if (isAccepted && isClosed) {
    return { reference: text.slice(start + '<img src="'.length, dataEnd), end: dataEnd + closing.length };
  }
  if (isPicture(text, dataStart)) {
    throw new HttpError(400, "invalid_image_reference", describeRefusal(isAccepted ? null : type, dataEnd), {
      parameter: path,
    });
  }
  return { reference: null, end: dataEnd };
}

function describeRefusal(type: string | null, end: number): string {
  const form = `<img src="data:image/jpeg;base64,…">, or png or webp instead of jpeg`;
  if (type !== null) return `A picture in the text has the type image/${type}; expected ${form}.`;
  return `The base64 data of a picture in the text ends at character ${end} without ${closing}; expected ${form}.`;
}

/** Base64 that is wrapped into lines, as `base64 FILE` and mail do it. */
const lineEnd = /\s*/y;

/** Whether so many characters of base64 start here, also with line ends between them, which are not accepted. */
function isPicture(text: string, start: number): boolean {
  let numCharacters = 0;
  for (let at = start; numCharacters < MIN_DATA_CHARACTERS; at = lineEnd.lastIndex) {
    const end = endOfBase64(text, at);
    if (end === at) return false;
    numCharacters += end - at;
    lineEnd.lastIndex = end;
    lineEnd.test(text);
  }
  return true;
}

/** Found by a search for the first other character, which reads a gigabyte in a second. */
function endOfBase64(text: string, start: number): number {
  const other = /[^A-Za-z0-9+/=]/g;
  other.lastIndex = start;
  return other.exec(text)?.index ?? text.length;
}
