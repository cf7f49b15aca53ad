/** Generates inputs to measure a model with: the maximum number of features, without meaning. */
import { crc32, deflateSync } from "node:zlib";

import type { ImageSize, LargestSize } from "./processing-info.ts";

export interface DummyInputs {
  /** A text with a placeholder per image, if the model has placeholders. */
  readonly text: string;
  /** Sizes of the pictures, the largest that matter. `dummyPicture` creates one. */
  readonly imageSizes: readonly ImageSize[];
}

export interface DummyInputsBuilder {
  /** `largestSize` makes the pictures smaller than the model's worst case, never larger. */
  build(numImages: number, largestSize?: LargestSize): DummyInputs;
}

/** Builds worst-case pictures for a text with one placeholder per image (none if the placeholder is empty). */
export function createDummyInputsBuilder(imagePlaceholder: string, worstCase: ImageSize): DummyInputsBuilder {
  return {
    build(numImages, largestSize = {}) {
      const size = {
        width: Math.min(worstCase.width, largestSize.width ?? worstCase.width),
        height: Math.min(worstCase.height, largestSize.height ?? worstCase.height),
      };
      return {
        text: imagePlaceholder.repeat(numImages),
        imageSizes: Array.from({ length: numImages }, () => size),
      };
    },
  };
}

/** A red picture as the bytes of a PNG file. */
export function dummyPicture({ width, height }: ImageSize): Uint8Array {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  // Eight bits per channel, red, green and blue.
  header.set([8, 2, 0, 0, 0], 8);
  // Each row starts with its filter type, none.
  const row = Buffer.alloc(1 + width * 3);
  for (let red = 1; red < row.length; red += 3) row[red] = 255;
  const rows = Buffer.concat(Array.from({ length: height }, () => row));
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  const chunks = [
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(rows, { level: 1 })),
    chunk("IEND", Buffer.alloc(0)),
  ];
  return Buffer.concat([signature, ...chunks]);
}

function chunk(type: string, content: Uint8Array): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(content.length);
  const body = Buffer.concat([Buffer.from(type), content]);
  const checksum = Buffer.alloc(4);
  checksum.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, checksum]);
}
