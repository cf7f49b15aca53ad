/**
 * The extension of the Open Inference Protocol for tensors in binary form, which follow the JSON of a body.
 * https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
 */
import { HttpError } from "../../http/errors.ts";

/** Names the length of the JSON in bytes, in requests and answers. Without it, the whole body is JSON. */
export const jsonLengthHeader = "Inference-Header-Content-Length";

/** Each element of a tensor of BYTES has its length in front, as an unsigned integer in little-endian order. */
const LENGTH_BYTES = 4;

/** @throws HttpError 400 for a header that is not a number of bytes. Null without a header. */
export function readJsonLength(header: string | undefined): number | null {
  if (header === undefined) return null;
  // More digits are longer than any body.
  if (/^\d{1,15}$/.test(header)) return Number(header);
  throw new HttpError(
    400,
    "invalid_value",
    `${jsonLengthHeader} must be the length of the JSON in bytes, not ${JSON.stringify(header.slice(0, 40))}.`,
  );
}

/**
 * The elements of a tensor of BYTES as texts.
 *
 * @param bytes The whole tensor.
 * @param numElements According to its shape; the caller bounds it.
 * @param path Of the tensor in the request, for errors: `inputs[0]`.
 * @throws HttpError 400 for another number of elements, for lengths that do not fit, and for texts that are not UTF-8.
 */
export function decodeTexts(bytes: Uint8Array, numElements: number, path: string): string[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const texts: string[] = [];
  let offset = 0;
  for (let index = 0; index < numElements; index++) {
    const numLeft = bytes.byteLength - offset - LENGTH_BYTES;
    if (numLeft < 0) {
      throw invalid(path, `has ${index} elements in its ${bytes.byteLength} bytes, but its shape has ${numElements}`);
    }
    const length = view.getUint32(offset, true);
    if (length > numLeft) {
      throw invalid(`${path}.data[${index}]`, `has ${length} bytes, but only ${numLeft} bytes of the tensor follow`);
    }
    offset += LENGTH_BYTES;
    texts.push(decodeText(bytes.subarray(offset, offset + length), `${path}.data[${index}]`));
    offset += length;
  }
  if (offset === bytes.byteLength) return texts;
  throw invalid(path, `has ${bytes.byteLength - offset} bytes after its ${numElements} elements`);
}

/** The same form of texts in UTF-8. */
export function encodeTexts(texts: readonly string[]): Uint8Array<ArrayBuffer> {
  return Buffer.concat(
    texts.flatMap((text) => {
      const bytes = Buffer.from(text, "utf8");
      const length = Buffer.alloc(LENGTH_BYTES);
      length.writeUInt32LE(bytes.byteLength);
      return [length, bytes];
    }),
  );
}

function decodeText(bytes: Uint8Array, path: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (error) {
    throw new HttpError(400, "invalid_value", `${path} is not UTF-8.`, { parameter: path, cause: error });
  }
}

function invalid(path: string, problem: string): HttpError {
  return new HttpError(400, "invalid_value", `${path} ${problem}.`, { parameter: path });
}
