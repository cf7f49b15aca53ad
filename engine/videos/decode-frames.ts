/** Decodes chosen frames of a video: from the nearest packet at which decoding can start, and nothing between. */
import type { FrameTable } from "./frame-table.ts";
import type { NativeCodecContext, NativeFrame, NativeLibrary } from "./native-library.ts";
import type { OpenVideo } from "./open-video.ts";

/** Packets from `start` to `end`, both included, which are decoded together. */
interface Span {
  readonly start: number;
  end: number;
}

export interface DecodeOptions {
  readonly maxVideoPixels: number;
  readonly numThreads: number;
}

/**
 * Calls `take` for every frame of `indices` that can be decoded, and for some others, in presentation order. `frame` is
 * valid until `take` returns.
 *
 * @param video Freshly opened.
 * @param indices Ascending. All frames if left out.
 */
export function decodeFrames(
  library: NativeLibrary,
  video: OpenVideo,
  table: FrameTable,
  options: DecodeOptions,
  take: (index: number, frame: NativeFrame) => void,
  indices?: readonly number[],
): void {
  const context = openDecoder(library, video, options);
  const packet = new library.Packet();
  const frame = new library.Frame();
  packet.alloc();
  frame.alloc();
  let numReturned = 0;
  const receive = (): void => {
    while (context.receiveFrameSync(frame) >= 0) {
      const index = table.isTimed ? (table.indices[Number(frame.pts)] ?? -1) : numReturned;
      numReturned++;
      if (index >= 0) take(index, frame);
      frame.unref();
    }
  };
  const drain = (): void => {
    context.sendPacketSync(null);
    receive();
    context.flushBuffers();
  };
  const wanted = indices !== undefined && table.isTimed ? new Set(indices) : null;
  /** Of frames that are not wanted, those are decoded that others may refer to. */
  const canSkip = (position: number): boolean => {
    const index = table.indices[position] ?? -1;
    return wanted !== null && index >= 0 && !wanted.has(index) && table.referred[position] === false;
  };
  try {
    const spans = indices === undefined ? [{ start: 0, end: Infinity }] : spansOf(table, indices);
    let span = spans.shift();
    let isSkipped = false;
    for (let position = 0; span !== undefined && video.readPacket(packet); position++) {
      if (position > span.end) {
        drain();
        span = spans.shift();
        if (span === undefined) break;
      }
      if (table.secondFields[position] !== true) isSkipped = canSkip(position);
      // An empty packet would mean the end of the video.
      if (position >= span.start && packet.size > 0 && !isSkipped) {
        // The decoder hands this on to the frame, which then names its packet, whatever times the file has.
        packet.pts = BigInt(position);
        // A packet that is broken costs its own frames only.
        context.sendPacketSync(packet);
        receive();
      }
      packet.unref();
    }
    if (span !== undefined) drain();
  } finally {
    packet.free();
    frame.free();
    context.freeContext();
  }
}

function openDecoder(
  library: NativeLibrary,
  { stream }: OpenVideo,
  { maxVideoPixels, numThreads }: DecodeOptions,
): NativeCodecContext {
  const codec = library.Codec.findDecoder(stream.codecpar.codecId)!;
  const context = new library.CodecContext();
  context.allocContext3(codec);
  context.parametersToContext(stream.codecpar);
  library.Option.set(context, "threads", String(numThreads));
  library.Option.set(context, "max_pixels", String(maxVideoPixels));
  context.open2Sync(codec, null);
  return context;
}

/** Ascending, at least one packet apart. */
function spansOf(table: FrameTable, indices: readonly number[]): Span[] {
  const spans: Span[] = [];
  const wanted = indices
    .map((index) => ({ start: table.startOf(index), end: endOf(table, table.positions[index]!) }))
    .toSorted((first, second) => first.start - second.start || first.end - second.end);
  for (const span of wanted) {
    const last = spans.at(-1);
    if (last !== undefined && span.start <= last.end + 1) last.end = Math.max(last.end, span.end);
    else spans.push(span);
  }
  // The number of frames before a frame without times is known at the end only.
  return table.isTimed ? spans : [{ start: 0, end: Infinity }];
}

/** Position of the last packet of a frame: packets that show no frame of their own may be its second field. */
function endOf({ indices }: FrameTable, position: number): number {
  const next = indices.findIndex((index, later) => later > position && index !== -1);
  return next === -1 ? indices.length - 1 : next - 1;
}
