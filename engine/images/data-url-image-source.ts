/** Images in the request itself: `data:image/png;base64,…`. */
import { EngineError } from "../contract/errors.ts";
import { describeReference } from "./describe-reference.ts";
import type { ImageSource } from "./image-source.ts";

/** Maximum length of the part before the comma: a media type and a few parameters. */
const MAX_HEADER_CHARACTERS = 1024;

/**
 * Reads `data:[<type>][;<parameter>]…;base64,<data>`. The type is ignored, because formats are detected by content. The
 * data must be strict, padded base64 of the standard alphabet without white space. Its size is checked before it is
 * decoded. `fetch` throws the errors of `ImageSource`.
 */
export function createDataUrlImageSource(): ImageSource {
  return {
    schemes: ["data"],
    async fetch(reference, { signal, maxImageBytes }) {
      signal.throwIfAborted();
      return decodeDataUrl(reference, maxImageBytes);
    },
  };
}

function decodeDataUrl(reference: string, maxImageBytes: number): Uint8Array {
  const comma = reference.slice(0, MAX_HEADER_CHARACTERS).indexOf(",");
  if (comma === -1) throw invalid(reference, "has no comma between its header and its data");
  const header = reference.slice(0, comma);
  if (!/^data:/i.test(header)) throw invalid(reference, "does not start with data:");
  if (!/;base64$/i.test(header)) throw invalid(reference, "is not marked ;base64, the only supported encoding");

  const numCharacters = reference.length - comma - 1;
  if (numCharacters === 0) throw invalid(reference, "has no data after its comma");
  if (numCharacters % 4 !== 0) throw invalid(reference, whyInvalid(reference.slice(comma + 1)));
  const numPadding = reference.endsWith("==") ? 2 : reference.endsWith("=") ? 1 : 0;
  const numBytes = (numCharacters / 4) * 3 - numPadding;
  if (numBytes > maxImageBytes) {
    throw new EngineError("image_too_large", `The image has ${numBytes} bytes; the limit is ${maxImageBytes}.`, {
      setting: "maxImageBytes",
    });
  }

  // Buffer skips invalid characters, which shows as missing bytes. Only the URL alphabet needs a separate check.
  const data = reference.slice(comma + 1);
  const bytes = Buffer.from(data, "base64");
  if (bytes.byteLength !== numBytes || data.includes("-") || data.includes("_")) {
    throw invalid(reference, whyInvalid(data));
  }
  return bytes;
}

/** At both ends. Lines of base64 have 76 characters or fewer. */
const MAX_SEARCHED_CHARACTERS = 4096;

/** Usual mistakes, which show soon: the data may have megabytes. */
function whyInvalid(data: string): string {
  const ends = data.slice(0, MAX_SEARCHED_CHARACTERS) + data.slice(-MAX_SEARCHED_CHARACTERS);
  const character = /[^A-Za-z0-9+/=]/.exec(ends)?.[0] ?? "";
  if (/^\s$/.test(character)) return "contains white space in its base64, which has to be one line without spaces";
  if (/^[-_]$/.test(character)) return "is in base64url; send + and / in place of - and _";
  if (character === "%") return "has percent-encoded base64; send it as it is";
  if (character === "" && data.length % 4 !== 0) {
    return `has ${data.length} characters of base64, which is not a multiple of 4: it is cut off, lacks its = at the end, or has other characters in it`;
  }
  return "contains characters that are not base64";
}

function invalid(reference: string, reason: string): EngineError {
  return new EngineError("invalid_image_reference", `The data URL ${describeReference(reference)} ${reason}.`);
}
