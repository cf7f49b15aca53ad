/** One video in the decoding process: its facts, or frames of it. */
import { EngineError } from "../contract/errors.ts";
import { decodeFrames } from "./decode-frames.ts";
import { readFrameTable, type FrameTable } from "./frame-table.ts";
import type { NativeLibrary } from "./native-library.ts";
import { couldNotBeDecoded, openVideo, type OpenVideo } from "./open-video.ts";
import type { VideoWork } from "./process-messages.ts";
import { createRgbConverter } from "./to-rgb-frame.ts";
import type { VideoReply } from "./video-reply.ts";

/** `payload` belongs to the caller again when this returns. */
export type SendReply = (reply: VideoReply, payload?: Uint8Array) => void;

/** @throws EngineError `invalid_video` or `video_too_large`. */
export function workOnVideo(
  library: NativeLibrary,
  bytes: Uint8Array,
  { indices, limits }: VideoWork,
  send: SendReply,
): void {
  const open = <Result>(use: (video: OpenVideo) => Result): Result => {
    const video = openVideo(library, bytes, limits.maxVideoPixels);
    try {
      return use(video);
    } finally {
      video.close();
    }
  };
  const { table, size } = open((video) => ({
    table: readTable(library, video, limits.maxNumFrames),
    size: sizeOf(video),
  }));
  if (indices === null) {
    const { times, durationSeconds } = table;
    const payload = new Uint8Array(times.buffer, times.byteOffset, times.byteLength);
    send({ kind: "facts", ...size, numFrames: times.length, durationSeconds }, payload);
    return;
  }
  const frameBytes = size.width * size.height * 3;
  if (indices.length * frameBytes > limits.maxFrameBytes) {
    throw new EngineError(
      "video_too_large",
      `${indices.length} frames of ${size.width}x${size.height} pixels have ${indices.length * frameBytes} bytes; ` +
        `the limit is ${limits.maxFrameBytes}.`,
    );
  }

  /** Decodes frames and sends those of `wanted`, under the indices that they stand for. */
  const sendFrames = (wanted: ReadonlyMap<number, readonly number[]>, decodesAll: boolean): Set<number> =>
    open((video) => {
      const sent = new Set<number>();
      const converter = createRgbConverter(library, video);
      const chosen = decodesAll ? undefined : [...wanted.keys()];
      try {
        decodeFrames(
          library,
          video,
          table,
          limits,
          (index, frame) => {
            const standsFor = wanted.get(index);
            if (standsFor === undefined || sent.has(index)) return;
            const pixels = converter.convert(frame);
            if (pixels === null) return;
            sent.add(index);
            for (const index of standsFor) send({ kind: "frame", index, ...size }, pixels);
          },
          chosen,
        );
      } finally {
        converter.free();
      }
      return sent;
    });

  const lastIndex = table.positions.length - 1;
  const wanted = Map.groupBy(indices, (index) => Math.min(index, lastIndex));
  const sent = sendFrames(wanted, false);
  const missing = [...wanted.keys()].filter((index) => !sent.has(index));
  if (missing.length > 0) {
    const decodable = open((video) => decodableFrames(library, video, table, limits));
    if (decodable.length === 0) throw couldNotBeDecoded();
    const nearest = Map.groupBy(missing, (index) => nearestOf(decodable, index));
    if (sendFrames(nearest, true).size < nearest.size) throw couldNotBeDecoded();
  }
  send({ kind: "done" });
}

function readTable(library: NativeLibrary, video: OpenVideo, maxNumFrames: number): FrameTable {
  const packet = new library.Packet();
  packet.alloc();
  try {
    return readFrameTable(video, packet, maxNumFrames);
  } finally {
    packet.free();
  }
}

/** As shown. */
function sizeOf({ stream, orientation }: OpenVideo): { readonly width: number; readonly height: number } {
  const { width, height } = stream.codecpar;
  return orientation.swapsAxes ? { width: height, height: width } : { width, height };
}

function decodableFrames(
  library: NativeLibrary,
  video: OpenVideo,
  table: FrameTable,
  limits: VideoWork["limits"],
): number[] {
  const found = new Set<number>();
  decodeFrames(library, video, table, limits, (index) => found.add(index));
  return [...found].filter((index) => index < table.positions.length).toSorted((first, second) => first - second);
}

function nearestOf(ascending: readonly number[], index: number): number {
  return ascending.reduce((best, next) => (Math.abs(next - index) < Math.abs(best - index) ? next : best));
}
