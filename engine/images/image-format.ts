/** Which picture format bytes hold, told by their first bytes alone: names, types and suffixes lie. */

export type ImageFormat = "png" | "jpeg" | "webp" | "gif" | "avif" | "tiff";

export const imageFormats: readonly ImageFormat[] = ["png", "jpeg", "webp", "gif", "avif", "tiff"];

/** Null for anything that is not served: SVG, PDF and other formats that carry scripts or references included. */
export function detectImageFormat(bytes: Uint8Array): ImageFormat | null {
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, Math.min(bytes.byteLength, 32)).toString("latin1");
  if (head.startsWith("\x89PNG\r\n\x1a\n")) return "png";
  if (head.startsWith("\xff\xd8\xff")) return "jpeg";
  if (head.startsWith("RIFF") && head.startsWith("WEBP", 8)) return "webp";
  if (head.startsWith("GIF87a") || head.startsWith("GIF89a")) return "gif";
  if (/^[^]{4}ftyp(avif|avis)/.test(head)) return "avif";
  if (head.startsWith("II*\0") || head.startsWith("MM\0*")) return "tiff";
  return null;
}
