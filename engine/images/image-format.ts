/** Detects the picture format by the first bytes only: names, types and suffixes can be wrong. */

export type ImageFormat = "png" | "jpeg" | "webp" | "gif" | "avif" | "tiff";

export const imageFormats: readonly ImageFormat[] = ["png", "jpeg", "webp", "gif", "avif", "tiff"];

/** Null for unsupported formats, including SVG, PDF and others that can contain scripts or references. */
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
