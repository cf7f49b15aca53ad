/** Counts the scans of a JPEG. A progressive one can have thousands, and each is a pass over the whole picture. */

const START_OF_IMAGE = 0xd8;
const END_OF_IMAGE = 0xd9;
const START_OF_SCAN = 0xda;

/**
 * Counts the scans of the first image in the file, because later ones are not decoded; at least 1. Reads broken files
 * to their end.
 */
export function countJpegScans(bytes: Uint8Array): number {
  let numScans = 0;
  let at = 2;
  for (;;) {
    // Within a scan, 0xff is data if 0 or a restart marker follows. Between segments it may be repeated.
    at = bytes.indexOf(0xff, at);
    if (at === -1 || at + 3 >= bytes.byteLength) break;
    const marker = bytes[at + 1]!;
    if (marker === END_OF_IMAGE) break;
    if (marker === START_OF_SCAN) numScans++;
    at += marker === 0xff ? 1 : hasLength(marker) ? 2 + ((bytes[at + 2]! << 8) | bytes[at + 3]!) : 2;
  }
  return Math.max(numScans, 1);
}

/** Whether a segment with a length follows the marker. */
function hasLength(marker: number): boolean {
  const isRestart = marker >= 0xd0 && marker <= 0xd7;
  return marker !== 0 && marker !== 1 && marker !== START_OF_IMAGE && !isRestart;
}
