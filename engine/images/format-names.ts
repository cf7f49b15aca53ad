/** Formats by name, for errors about files that are not decoded. */

const MAX_START_BYTES = 64;

const heif = "a HEIC or HEIF file";
const video = "a video";
const twice = "encoded in base64 twice";

/** What files contain that are sent as images and are not decoded, in Latin-1 and from which byte on. */
const starts: readonly (readonly [offset: number, text: string, name: string])[] = [
  ...["heic", "heix", "heim", "heis", "hevc", "mif1", "msf1"].map((brand) => [4, `ftyp${brand}`, heif] as const),
  [4, "ftyp", video],
  [0, "\u001aE\u00df\u00a3", video],
  [8, "AVI ", video],
  [0, "BM", "a BMP file"],
  [0, "\0\0\u0001\0", "an icon of Windows"],
  [0, "II+\0", "a BigTIFF file"],
  [0, "MM\0+", "a BigTIFF file"],
  [0, "\u00ff\n", "a JPEG XL file"],
  [0, "\0\0\0\fJXL ", "a JPEG XL file"],
  [0, "\u00ffO\u00ffQ", "a JPEG 2000 file"],
  [0, "\0\0\0\fjP ", "a JPEG 2000 file"],
  [0, "8BPS", "a Photoshop file"],
  [0, "%PDF-", "a PDF file"],
  [0, "%!PS", "a PostScript file"],
  [0, "\u001f\u008b", "a gzip file"],
  [0, "PK\u0003\u0004", "a ZIP archive or an office document"],
  ...["iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "data:"].map((text) => [0, text, twice] as const),
];

/** How texts begin, after a byte order mark and white space. */
const texts: readonly (readonly [start: RegExp, name: string])[] = [
  [/^<(?:!doctype html|html)\b/i, "an HTML page"],
  [/^<(?:\?xml|!doctype svg|svg)\b/i, "an SVG or another XML file"],
  [/^[{[]\s*["{]/, "a JSON text"],
];

/** Name of the format with its article; null if it is none of those. */
export function foreignFormatOf(bytes: Uint8Array): string | null {
  const start = Buffer.from(bytes.subarray(0, MAX_START_BYTES)).toString("latin1");
  const found = starts.find(([offset, text]) => start.startsWith(text, offset));
  if (found !== undefined) return found[2];
  const text = start.replace(/^\u00ef\u00bb\u00bf/, "").trimStart();
  return texts.find(([pattern]) => pattern.test(text))?.[1] ?? null;
}
