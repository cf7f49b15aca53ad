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

const acceptedForm = `<img src="data:image/jpeg;base64,…">, or png or webp instead of jpeg`;

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
 * @throws HttpError 400 for a picture that is not closed, of a type that is not accepted, or in a tag of another form.
 */
export function splitInlineImages(text: string, path: string): ContentPart[] | null {
  const parts: ContentPart[] = [];
  const addText = (start: number, end: number): void => {
    if (end <= start) return;
    const between = text.slice(start, end);
    refuseOtherForms(between, start, path);
    parts.push({ type: "text", text: between });
  };
  let textStart = 0;
  let at = text.indexOf(opening);
  while (at !== -1) {
    const tag = readTag(text, at, path);
    if (tag.reference !== null) {
      addText(textStart, at);
      parts.push({ type: "image", reference: tag.reference });
      textStart = tag.end;
    }
    at = text.indexOf(opening, tag.end);
  }
  addText(textStart, text.length);
  return textStart === 0 ? null : parts;
}

/** Attributes before the picture, or parameters of its type, that are looked through. */
const MAX_ATTRIBUTE_CHARACTERS = 512;

/** Other quotes, spaces, attributes, letters or parameters: `<IMG alt='a' src='data:image/png;name=a;base64,…'/>`. */
function refuseOtherForms(text: string, offset: number, path: string): void {
  const scheme = /data:image\//gi;
  for (let found = scheme.exec(text); found !== null; found = scheme.exec(text)) {
    const before = text.slice(Math.max(0, found.index - MAX_ATTRIBUTE_CHARACTERS), found.index);
    const isInTag = /^<img\s[^>]*$/i.test(before.slice(before.lastIndexOf("<")));
    if (!isInTag) continue;
    const type = text.slice(scheme.lastIndex, scheme.lastIndex + MAX_ATTRIBUTE_CHARACTERS);
    const typeLength = /^[^<>,]*;\s*base64,\s*/i.exec(type)?.[0].length;
    if (typeLength === undefined || !isPicture(text, scheme.lastIndex + typeLength)) continue;
    const position = offset + found.index;
    const message = `The tag around the picture at character ${position} of the text has another form; expected ${acceptedForm}.`;
    throw new HttpError(400, "invalid_image_reference", message, { parameter: path });
  }
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
  if (type !== null) return `A picture in the text has the type image/${type}; expected ${acceptedForm}.`;
  return `The base64 data of a picture in the text ends at character ${end} without ${closing}; expected ${acceptedForm}.`;
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
