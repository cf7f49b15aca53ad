/** The bytes of pictures: from data URLs to blobs and back, and as JPEG. */
import { createId, toHex } from "./ids.js";

/** @import { Picture } from "./chat-request.js" */

/** JPEG artefacts at this quality are too small to change what a picture shows. */
const JPEG_QUALITY = 0.95;

/** Hexadecimal digits of a hash that are kept: 96 bits, so that two pictures never share them by chance. */
const NUM_DIGITS = 24;

/**
 * @typedef {object} PictureBytes
 * @property {string} id  Equal for equal pictures, if the page comes over https or from this machine.
 * @property {Blob} blob
 */

/** @type {WeakMap<Picture, Promise<PictureBytes>>} */
const known = new WeakMap();

/**
 * @param {Picture} picture
 * @returns {Promise<PictureBytes>}
 */
export function readBytes(picture) {
  const bytes = known.get(picture) ?? decode(picture.url);
  known.set(picture, bytes);
  return bytes;
}

/**
 * @param {string} name
 * @param {PictureBytes} bytes
 * @returns {Promise<Picture>}
 */
export async function toPicture(name, bytes) {
  const picture = { name, url: await toDataUrl(bytes.blob) };
  known.set(picture, Promise.resolve(bytes));
  return picture;
}

/** @param {string} url  A base64 data URL. */
async function decode(url) {
  const comma = url.indexOf(",");
  const [type = ""] = url.slice("data:".length, comma).split(";");
  const bytes = Uint8Array.from(atob(url.slice(comma + 1)), (character) => character.charCodeAt(0));
  // Only pages that come over https or from this machine can hash; the others keep equal pictures twice.
  const id = crypto.subtle ? toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes))) : createId();
  return { id: id.slice(0, NUM_DIGITS), blob: new Blob([bytes], { type }) };
}

/**
 * @param {Blob} blob
 * @returns {Promise<string>}
 */
export async function toDataUrl(blob) {
  /** @type {PromiseWithResolvers<string>} */
  const { promise, resolve, reject } = Promise.withResolvers();
  const reader = new FileReader();
  reader.addEventListener("load", () => resolve(/** @type {string} */ (reader.result)));
  reader.addEventListener("error", () => reject(reader.error));
  reader.readAsDataURL(blob);
  return promise;
}

/**
 * The base64 of a picture as JPEG: as it is if it is one, and converted on white ground otherwise. Null if the browser
 * cannot decode it.
 *
 * @param {Blob} blob
 * @returns {Promise<string | null>}
 */
export async function toJpegBase64(blob) {
  const jpeg = blob.type === "image/jpeg" ? blob : await tryConvert(blob);
  if (jpeg === null) return null;
  const url = await toDataUrl(jpeg);
  return url.slice(url.indexOf(",") + 1);
}

/** @param {Blob} blob */
async function tryConvert(blob) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(blob);
  } catch {
    return null;
  }
  const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
  const context = canvas.getContext("2d");
  if (context === null) return null;
  context.fillStyle = "white";
  context.fillRect(0, 0, bitmap.width, bitmap.height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return canvas.convertToBlob({ type: "image/jpeg", quality: JPEG_QUALITY });
}
