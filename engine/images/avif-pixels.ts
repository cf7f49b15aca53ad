/**
 * Counts the pixels that a decoder computes for an AVIF. The size in its header says little: the coded picture may have
 * another one, and many frames, and a grid may show one pixel of 65,000 large tiles.
 */
import { readAv1Frames } from "./av1-frames.ts";
import type { Av1Frames } from "./av1-frames.ts";
import { boxesIn, brokenAvif, onlyBox, readBoxes, viewOf } from "./avif-boxes.ts";
import type { Box } from "./avif-boxes.ts";
import { readItemData, readItemTypes, readReferences } from "./avif-items.ts";

/** A picture that derives from others has a grid, which has tiles, which have transparency. */
const MAX_DEPTH = 4;
/** Properties that are a pass over the picture each. */
const transformations: ReadonlySet<string> = new Set(["irot", "imir", "clap"]);

/**
 * Pixels of all frames, tiles, canvases and planes of transparency of the most expensive picture in the file: decoders
 * differ in which they call the first.
 *
 * @throws EngineError `invalid_image` for boxes that are broken or contradict each other, and for overlays.
 */
export function countAvifPixels(bytes: Uint8Array): number {
  try {
    return countPixels(bytes);
  } catch (error) {
    // From beyond the end of a box.
    if (error instanceof RangeError) throw brokenAvif(error);
    throw error;
  }
}

function countPixels(bytes: Uint8Array): number {
  const meta = onlyBox(boxesIn(bytes), "meta");
  // Version and flags come first.
  const boxes = readBoxes(meta.content.subarray(4));
  const types = readItemTypes(onlyBox(boxes, "iinf"));
  const idat = boxes.find(({ type }) => type === "idat")?.content ?? new Uint8Array();
  const data = readItemData(bytes, onlyBox(boxes, "iloc"), idat);
  checkMetadata(bytes, types, data);
  const { partsOf, planesOf } = readReferences(boxes.filter(({ type }) => type === "iref"));
  const properties = readBoxes(onlyBox(boxes, "iprp").content);
  const kinds = readBoxes(onlyBox(properties, "ipco").content);
  checkTransformations(properties, kinds);
  const configured = readConfigurations(kinds);
  const framesOf = new Map<Uint8Array, Av1Frames>();
  const counted = new Map<number, number>();

  const countOwn = (id: number): number => {
    const content = data.get(id) ?? new Uint8Array();
    const type = types.get(id);
    if (type === "iovl") throw brokenAvif();
    if (type === "grid") return readCanvasPixels(content);
    if (type !== "av01") return 0;
    const frames = framesOf.get(content) ?? readAv1Frames(content);
    framesOf.set(content, frames);
    const numFrames = frames.numFrames + configured.numFrames;
    return numFrames * Math.max(frames.maxFramePixels, configured.maxFramePixels);
  };
  const count = (id: number, depth: number): number => {
    const known = counted.get(id);
    if (known !== undefined) return known;
    if (depth > MAX_DEPTH) throw brokenAvif();
    let numPixels = countOwn(id);
    for (const part of partsOf.get(id) ?? []) numPixels += count(part, depth + 1);
    for (const plane of planesOf.get(id) ?? []) numPixels += count(plane, depth + 1);
    counted.set(id, numPixels);
    return numPixels;
  };
  let most = 0;
  for (const id of types.keys()) most = Math.max(most, count(id, 0));
  return most;
}

/** Frames and sizes in the decoders' configurations, which are read before the data of a picture. */
function readConfigurations(kinds: readonly Box[]): Av1Frames {
  let numFrames = 0;
  let maxFramePixels = 0;
  for (const { type, content } of kinds) {
    if (type !== "av1C") continue;
    const frames = readAv1Frames(content.subarray(4));
    numFrames += frames.numFrames;
    maxFramePixels = Math.max(maxFramePixels, frames.maxFramePixels);
  }
  return { numFrames, maxFramePixels };
}

/** A picture has at most one transformation of each kind, as in the specification (23008-12, 6.5). */
function checkTransformations(properties: readonly Box[], kinds: readonly Box[]): void {
  for (const { type, content } of properties) {
    if (type !== "ipma") continue;
    const view = viewOf(content);
    const idSize = view.getUint8(0) > 0 ? 4 : 2;
    const hasLongIndices = (view.getUint8(3) & 1) === 1;
    const numItems = view.getUint32(4);
    let at = 8;
    for (let item = 0; item < numItems; item++) {
      at += idSize;
      const found = new Set<string>();
      const numProperties = view.getUint8(at++);
      for (let property = 0; property < numProperties; property++) {
        const index = hasLongIndices ? view.getUint16(at) & 0x7fff : view.getUint8(at) & 0x7f;
        at += hasLongIndices ? 2 : 1;
        const kind = kinds[index - 1]?.type ?? "";
        if (found.has(kind)) throw brokenAvif();
        if (transformations.has(kind)) found.add(kind);
      }
    }
  }
}

/** Decoders read all metadata into memory, and the data of two items may be the same. */
function checkMetadata(
  bytes: Uint8Array,
  types: ReadonlyMap<number, string>,
  data: ReadonlyMap<number, Uint8Array>,
): void {
  let numBytes = 0;
  for (const [id, content] of data) if (types.get(id) !== "av01") numBytes += content.byteLength;
  if (numBytes > bytes.byteLength) throw brokenAvif();
}

/** `output_width * output_height` of a grid. */
function readCanvasPixels(content: Uint8Array): number {
  const view = viewOf(content);
  const hasLongSizes = (view.getUint8(1) & 1) === 1;
  return hasLongSizes ? view.getUint32(4) * view.getUint32(8) : view.getUint16(4) * view.getUint16(6);
}
