/** Containers by name, for errors about files that are not decoded. */

/** As `containers` of open-video.ts allows them. */
export const containerNames = "MP4, MOV, 3GP, WebM, Matroska, AVI, MPEG-TS, GIF and animated WebP";

const MAX_START_BYTES = 64;

/** How files begin that are sent as videos and are not decoded, in Latin-1. */
const starts: readonly (readonly [start: string, name: string])[] = [
  ["FLV", "an FLV file"],
  ["\u0030\u0026\u00b2\u0075\u008e\u0066\u00cf\u0011", "a WMV or another ASF file"],
  ["OggS", "an Ogg file"],
  ["\u0000\u0000\u0001\u00ba", "an MPEG program stream"],
  [".RMF", "a RealMedia file"],
  ["\u0089PNG", "a PNG or APNG file"],
  ["\u00ff\u00d8\u00ff", "a JPEG file"],
  ["#EXTM3U", "an HLS playlist"],
];

/** Whether a file begins as MP4 and MOV do. Without its end, it often lacks the index, which recorders write last. */
export function isIsoFile(bytes: Uint8Array): boolean {
  return Buffer.from(bytes.subarray(4, 8)).toString("latin1") === "ftyp";
}

/** Name of the container with its article; null if it is none of those. */
export function foreignContainerOf(bytes: Uint8Array): string | null {
  const start = Buffer.from(bytes.subarray(0, MAX_START_BYTES)).toString("latin1");
  const found = starts.find(([text]) => start.startsWith(text));
  if (found !== undefined) return found[1];
  if (start.startsWith("RIFF") && start.startsWith("WEBP", 8)) return "a WebP file without animation";
  return /^\s*<(?:!doctype html|html)\b/i.test(start) ? "an HTML page" : null;
}
