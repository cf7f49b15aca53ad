/** Files that are expensive to read, written byte by byte, as no encoder would write them. */

/** A progressive JPEG of zeros, `edge` pixels wide and high, with the given number of valid scans, up to 883. */
export function manyScansJpeg(edge: number, numScans: number): Buffer {
  const segment = (marker: number, ...content: readonly (Uint8Array | readonly number[])[]): Buffer => {
    const body = Buffer.concat(content.map((part) => Buffer.from(part)));
    const head = Buffer.from([0xff, marker, 0, 0]);
    head.writeUInt16BE(body.length + 2, 2);
    return Buffer.concat([head, body]);
  };
  const numBlocks = Math.ceil(edge / 8) ** 2;
  const oneCode = [1, ...Array.from({ length: 15 }, () => 0)];
  const twoCodes = [1, 1, ...Array.from({ length: 14 }, () => 0)];
  /** A run of 16,384 and more blocks without coefficients, and the end of one block. */
  const endOfBlocks = [0xe0, 0x00];
  const coefficients = encodeEmptyBlocks(numBlocks);
  const scans: Buffer[] = [];
  // Each coefficient bit by bit from the highest, as in successive approximation.
  for (let bit = 13; bit >= 0; bit--) {
    for (let coefficient = 1; coefficient < 64 && scans.length < numScans - 1; coefficient++) {
      const approximation = bit === 13 ? bit : ((bit + 1) << 4) | bit;
      const head = segment(0xda, [1, 1, 0, coefficient, coefficient, approximation]);
      scans.push(Buffer.concat([head, coefficients]));
    }
  }
  return Buffer.concat([
    Buffer.from([0xff, 0xd8]),
    segment(0xdb, [0], Buffer.alloc(64, 1)),
    segment(0xc2, [8, edge >> 8, edge & 255, edge >> 8, edge & 255, 1, 1, 0x11, 0]),
    segment(0xc4, [0x00], oneCode, [0]),
    segment(0xc4, [0x10], twoCodes, endOfBlocks),
    segment(0xda, [1, 1, 0, 0, 0, 0]),
    // A bit for each block: the same grey.
    Buffer.alloc(Math.ceil(numBlocks / 8)),
    ...scans,
    Buffer.from([0xff, 0xd9]),
  ]);
}

function encodeEmptyBlocks(numBlocks: number): Buffer {
  let bits = "";
  for (let left = numBlocks; left > 0;) {
    const run = Math.min(left, 32_767);
    bits += run >= 16_384 ? `0${(run - 16_384).toString(2).padStart(14, "0")}` : "10";
    left -= run >= 16_384 ? run : 1;
  }
  const bytes: number[] = [];
  for (let at = 0; at < bits.length; at += 8) {
    const byte = Number.parseInt(bits.slice(at, at + 8).padEnd(8, "1"), 2);
    bytes.push(byte);
    if (byte === 0xff) bytes.push(0);
  }
  return Buffer.from(bytes);
}

function riffChunk(name: string, content: Uint8Array): Buffer {
  const head = Buffer.alloc(8);
  head.write(name, "latin1");
  head.writeUInt32LE(content.byteLength, 4);
  return Buffer.concat([head, content, Buffer.alloc(content.byteLength % 2)]);
}

/** An animation that repeats one still picture. @param still A WebP without transparency. */
export function animatedWebp(still: Buffer, edge: number, numFrames: number): Buffer {
  const uint24 = (value: number): number[] => [value & 255, (value >> 8) & 255, value >> 16];
  const place = Buffer.from([...uint24(0), ...uint24(0), ...uint24(edge - 1), ...uint24(edge - 1), ...uint24(10), 0]);
  const frame = riffChunk("ANMF", Buffer.concat([place, still.subarray(12)]));
  const content = Buffer.concat([
    Buffer.from("WEBP"),
    riffChunk("VP8X", Buffer.from([2, 0, 0, 0, ...uint24(edge - 1), ...uint24(edge - 1)])),
    riffChunk("ANIM", Buffer.alloc(6)),
    ...Array.from({ length: numFrames }, () => frame),
  ]);
  return riffChunk("RIFF", content);
}

/** A TIFF with one grey pixel on each page. With `isLoop`, the last page points to the first. */
export function manyPagesTiff(numPages: number, isLoop = false): Buffer {
  const [header, numEntries, gap] = [8, 10, 6];
  const pageBytes = 2 + numEntries * 12 + 4 + gap;
  const bytes = Buffer.alloc(header + numPages * pageBytes);
  bytes.write("II*\0", "latin1");
  bytes.writeUInt32LE(header, 4);
  for (let page = 0; page < numPages; page++) {
    const at = header + page * pageBytes;
    const pixelAt = at + pageBytes - gap;
    const entries = [
      [256, 3, 1],
      [257, 3, 1],
      [258, 3, 8],
      [259, 3, 1],
      [262, 3, 1],
      [273, 4, pixelAt],
      [277, 3, 1],
      [278, 3, 1],
      [279, 4, 1],
      [284, 3, 1],
    ];
    bytes.writeUInt16LE(numEntries, at);
    for (const [index, [tag, type, value]] of entries.entries()) {
      const entryAt = at + 2 + index * 12;
      bytes.writeUInt16LE(tag!, entryAt);
      bytes.writeUInt16LE(type!, entryAt + 2);
      bytes.writeUInt32LE(1, entryAt + 4);
      bytes.writeUInt32LE(value!, entryAt + 8);
    }
    const isLast = page === numPages - 1;
    bytes.writeUInt32LE(isLast ? (isLoop ? header : 0) : at + pageBytes, at + 2 + numEntries * 12);
    bytes[pixelAt] = page === 0 ? 200 : 10;
  }
  return bytes;
}

/** A GIF of one-pixel frames on a screen. */
export function manyFramesGif(screen: number, numFrames: number): Buffer {
  const size = Buffer.alloc(4);
  size.writeUInt16LE(screen, 0);
  size.writeUInt16LE(screen, 2);
  const frame = Buffer.from([0x2c, 0, 0, 0, 0, 1, 0, 1, 0, 0, 2, 2, 0x44, 1, 0]);
  return Buffer.concat([
    Buffer.from("GIF89a"),
    size,
    Buffer.from([0x80, 0, 0, 255, 0, 0, 0, 0, 255]),
    ...Array.from({ length: numFrames }, () => frame),
    Buffer.from([0x3b]),
  ]);
}

/** A JPEG with segments inserted after its beginning. */
export function withSegments(jpeg: Buffer, marker: number, contents: readonly Uint8Array[]): Buffer {
  const segments = contents.map((content) => {
    const head = Buffer.from([0xff, marker, 0, 0]);
    head.writeUInt16BE(content.byteLength + 2, 2);
    return Buffer.concat([head, content]);
  });
  return Buffer.concat([jpeg.subarray(0, 2), ...segments, jpeg.subarray(2)]);
}

/** EXIF with the given number of entries, each a text of four gigabytes at an offset beyond the end. */
export function absurdExif(numEntries: number): Buffer {
  const exif = Buffer.alloc(6 + 8 + 2 + numEntries * 12 + 4);
  exif.write("Exif\0\0II*\0", "latin1");
  exif.writeUInt32LE(8, 10);
  exif.writeUInt16LE(numEntries, 14);
  for (let entry = 0; entry < numEntries; entry++) {
    const at = 16 + entry * 12;
    exif.writeUInt16LE(0x10f, at);
    exif.writeUInt16LE(2, at + 2);
    exif.writeUInt32LE(0xffff_ff00, at + 4);
    exif.writeUInt32LE(0xffff_fff0, at + 8);
  }
  return exif;
}

/** A grey TIFF whose tiles are all the same: `tile` has the pixels of one, compressed by Deflate. */
export function tiledTiff(options: {
  readonly width: number;
  readonly height: number;
  readonly tileEdge: number;
  readonly tile: Uint8Array;
}): Buffer {
  const { width, height, tileEdge, tile } = options;
  const numTiles = Math.ceil(width / tileEdge) * Math.ceil(height / tileEdge);
  const numEntries = 10;
  const listsAt = 8 + 2 + numEntries * 12 + 4;
  const tileAt = listsAt + 2 * 4 * numTiles;
  const bytes = Buffer.alloc(tileAt);
  /** A list of one value stands in its entry. */
  const list = (value: number, at: number): number => (numTiles === 1 ? value : at);
  const entries = [
    [256, 1, width],
    [257, 1, height],
    [258, 1, 8],
    [259, 1, 8],
    [262, 1, 1],
    [277, 1, 1],
    [322, 1, tileEdge],
    [323, 1, tileEdge],
    [324, numTiles, list(tileAt, listsAt)],
    [325, numTiles, list(tile.byteLength, listsAt + 4 * numTiles)],
  ] as const;
  bytes.write("II*\0", "latin1");
  bytes.writeUInt32LE(8, 4);
  bytes.writeUInt16LE(numEntries, 8);
  for (const [index, [tag, count, value]] of entries.entries()) {
    const at = 10 + index * 12;
    bytes.writeUInt16LE(tag, at);
    bytes.writeUInt16LE(4, at + 2);
    bytes.writeUInt32LE(count, at + 4);
    bytes.writeUInt32LE(value, at + 8);
  }
  for (let index = 0; index < numTiles; index++) {
    bytes.writeUInt32LE(tileAt, listsAt + 4 * index);
    bytes.writeUInt32LE(tile.byteLength, listsAt + 4 * (numTiles + index));
  }
  return Buffer.concat([bytes, tile]);
}
