/** Writes small PDF files (ISO 32000-1): pages with text and pictures. */
import { fileURLToPath } from "node:url";
import { deflateSync } from "node:zlib";
import sharp from "sharp";

export interface PdfPicture {
  readonly width: number;
  readonly height: number;
  /** RGB, row-major. */
  readonly data: Uint8Array;
}

/** Sizes and positions are in points, from the lower left corner. */
export interface PdfPage {
  readonly width: number;
  readonly height: number;
  /** In Helvetica, 24 points high, from the top. */
  readonly lines?: readonly string[];
  /** Fills the page. */
  readonly picture?: PdfPicture;
  /** Clockwise turn for display: 0, 90, 180 or 270. */
  readonly rotation?: number;
  /** Further operators of the page's content. */
  readonly operators?: string;
  /** The operators with which a form field over the whole page shows its value. */
  readonly field?: string;
}

export function writePdf(pages: readonly PdfPage[]): Buffer<ArrayBuffer> {
  const objects: Buffer[] = [];
  const add = (body: string | Buffer): number => objects.push(Buffer.from(body));
  const stream = (dictionary: string, data: Uint8Array): Buffer =>
    Buffer.concat([
      Buffer.from(`<< ${dictionary} /Length ${data.byteLength} >>\nstream\n`),
      data,
      Buffer.from("\nendstream"),
    ]);
  const fields: number[] = [];
  add("");
  add("");
  add("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>");
  const kids = pages.map(({ width, height, lines = [], picture, rotation = 0, operators = "", field }) => {
    const texts = lines.map((line, row) => `BT /F1 24 Tf 36 ${height - 60 - row * 30} Td (${line}) Tj ET`);
    const drawing = picture === undefined ? "" : `q ${width} 0 0 ${height} 0 0 cm /P1 Do Q`;
    const content = add(stream("", Buffer.from([drawing, ...texts, operators].join("\n"))));
    const pixels =
      picture &&
      add(
        stream(
          `/Type /XObject /Subtype /Image /Width ${picture.width} /Height ${picture.height} ` +
            "/ColorSpace /DeviceRGB /BitsPerComponent 8 /Filter /FlateDecode",
          deflateSync(picture.data),
        ),
      );
    const box = `[0 0 ${width} ${height}]`;
    const shown =
      field === undefined ? 0 : add(stream(`/Type /XObject /Subtype /Form /BBox ${box}`, Buffer.from(field)));
    if (shown > 0) {
      const value = `/FT /Tx /T (field${shown}) /V (value) /F 4 /AP << /N ${shown} 0 R >>`;
      fields.push(add(`<< /Type /Annot /Subtype /Widget ${value} /Rect ${box} >>`));
    }
    const annotations = shown === 0 ? "" : `/Annots [${shown + 1} 0 R]`;
    const pictures = pixels === undefined ? "" : `/XObject << /P1 ${pixels} 0 R >>`;
    return add(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${width} ${height}] /Rotate ${rotation} ${annotations} ` +
        `/Contents ${content} 0 R /Resources << /Font << /F1 3 0 R >> ${pictures} >> >>`,
    );
  });
  objects[1] = Buffer.from(
    `<< /Type /Pages /Count ${kids.length} /Kids [${kids.map((kid) => `${kid} 0 R`).join(" ")}] >>`,
  );
  const form = `/AcroForm << /Fields [${fields.map((field) => `${field} 0 R`).join(" ")}] >>`;
  objects[0] = Buffer.from(`<< /Type /Catalog /Pages 2 0 R ${fields.length === 0 ? "" : form} >>`);
  const parts: Buffer[] = [Buffer.from("%PDF-1.4\n")];
  let position = parts[0]!.byteLength;
  const offsets = objects.map((body, index) => {
    const object = Buffer.concat([Buffer.from(`${index + 1} 0 obj\n`), body, Buffer.from("\nendobj\n")]);
    parts.push(object);
    const offset = position;
    position += object.byteLength;
    return `${String(offset).padStart(10, "0")} 00000 n \n`;
  });
  const size = objects.length + 1;
  parts.push(
    Buffer.from(
      `xref\n0 ${size}\n0000000000 65535 f \n${offsets.join("")}trailer << /Size ${size} /Root 1 0 R >>\n` +
        `startxref\n${position}\n%%EOF\n`,
    ),
  );
  return Buffer.concat(parts);
}

/** A page for each picture, one point for each of its pixels. */
export async function pdfOfPictures(...files: readonly (URL | string)[]): Promise<Buffer<ArrayBuffer>> {
  const pages = await Promise.all(
    files.map(async (file) => {
      const picture = sharp(file instanceof URL ? fileURLToPath(file) : file).removeAlpha();
      const { data, info } = await picture.raw().toBuffer({ resolveWithObject: true });
      const { width, height } = info;
      return { width, height, picture: { width, height, data } };
    }),
  );
  return writePdf(pages);
}

export function pdfUrl(pages: readonly PdfPage[]): string {
  return `data:application/pdf;base64,${writePdf(pages).toString("base64")}`;
}
