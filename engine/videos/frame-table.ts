/** Which frames a video has, from its packets alone. */
import { EngineError } from "../contract/errors.ts";
import { pictureReaderOf } from "./coded-picture.ts";
import { NO_TIMESTAMP, PACKET_DISCARD, PACKET_KEY, type NativePacket, type Rational } from "./native-library.ts";
import { couldNotBeDecoded, type OpenVideo } from "./open-video.ts";

/** A position in decoding order is a packet's number within the stream; an index is a frame's in presentation order. */
export interface FrameTable {
  /** By index. */
  readonly positions: Int32Array;
  /** By position; -1 for packets that show no frame. */
  readonly indices: Int32Array;
  /** By index, in seconds, ascending from 0. */
  readonly times: Float64Array;
  readonly durationSeconds: number;
  /**
   * False if packets lack presentation times: then a frame's index is known only from how many the decoder returned
   * before it.
   */
  readonly isTimed: boolean;
  /** By position: whether another frame may need the packet. */
  readonly referred: readonly boolean[];
  /** By position: whether the packet is the second field of the frame of the packet before. */
  readonly secondFields: readonly boolean[];
  /** Position of the packet at which decoding has to start for the frame of an index. */
  startOf(index: number): number;
}

/** Frames per second where a file does not say. */
const ASSUMED_FPS = 25;

interface Packets {
  /** Ticks, by position; NaN if unknown. */
  readonly presentation: number[];
  readonly decoding: number[];
  readonly shown: boolean[];
  readonly referred: boolean[];
  readonly secondFields: boolean[];
  /** Positions at which decoding can start, ascending. */
  readonly starts: number[];
  /** The first key picture: decoders skip what comes before it, and what is shown before it if it opens its group. */
  firstKey: { readonly position: number; readonly opensGroup: boolean } | null;
  /** Ticks of the frame shown last, 0 if unknown. */
  lastDuration: number;
}

/**
 * Reads all packets of the video.
 *
 * @throws EngineError `invalid_video` without frames, `video_too_large` for more than `maxNumFrames` packets.
 */
export function readFrameTable(video: OpenVideo, packet: NativePacket, maxNumFrames: number): FrameTable {
  const packets = readPackets(video, packet, maxNumFrames);
  const positions = shownPositions(packets);
  if (positions.length === 0) throw couldNotBeDecoded();
  const isTimed = areTimed(packets, positions, video.stream.codecpar.videoDelay);
  // The sort is stable: among equal times, decoding order.
  if (isTimed) positions.sort((first, second) => packets.presentation[first]! - packets.presentation[second]!);
  const indices = new Int32Array(packets.shown.length).fill(-1);
  positions.forEach((position, index) => (indices[position] = index));
  const ticks = isTimed ? Float64Array.from(positions, (position) => packets.presentation[position]!) : null;
  const { times, durationSeconds } = toSeconds(
    positions.length,
    ticks ?? decodingTicks(packets, positions),
    video,
    packets.lastDuration,
  );
  return {
    positions,
    indices,
    times,
    durationSeconds,
    isTimed,
    referred: packets.referred,
    secondFields: packets.secondFields,
    startOf(index) {
      if (!isTimed) return 0;
      const { starts, presentation } = packets;
      const position = positions[index]!;
      // Frames that follow a start but are shown before it may refer to frames before it.
      return starts.findLast((start) => start <= position && presentation[start]! <= presentation[position]!) ?? 0;
    },
  };
}

function readPackets(video: OpenVideo, packet: NativePacket, maxNumFrames: number): Packets {
  const read = pictureReaderOf(video.decoder, video.stream.codecpar.extradata);
  const packets: Packets = {
    presentation: [],
    decoding: [],
    shown: [],
    referred: [],
    secondFields: [],
    starts: [],
    firstKey: null,
    lastDuration: 0,
  };
  let latest = Number.NEGATIVE_INFINITY;
  while (video.readPacket(packet)) {
    const position = packets.shown.length;
    if (position === maxNumFrames) {
      packet.unref();
      throw new EngineError("video_too_large", `The video has more than ${maxNumFrames} frames.`);
    }
    const isKey = (packet.flags & PACKET_KEY) !== 0;
    const picture = read(packet.data ?? new Uint8Array(), isKey);
    const { isShown, isStart, isLeading, opensGroup, isReferred, isSecondField } = picture;
    const presentation = toTicks(packet.pts);
    if (isStart) packets.starts.push(position);
    if (isStart || isKey) packets.firstKey ??= { position, opensGroup };
    packets.presentation.push(presentation);
    packets.decoding.push(toTicks(packet.dts));
    packets.referred.push(isReferred);
    packets.secondFields.push(isSecondField);
    // Neither field is decoded without the other.
    if (isSecondField) packets.referred[position - 1] ||= isReferred;
    packets.shown.push(
      isShown &&
        packet.size > 0 &&
        (packet.flags & PACKET_DISCARD) === 0 &&
        // The decoder skips pictures that refer to others before the beginning of the file.
        !(isLeading && packets.starts.length === 1),
    );
    if (isSecondField) {
      if (packets.presentation[position - 1] === latest) packets.lastDuration += toTicks(packet.duration);
    } else if (!(presentation < latest)) {
      latest = presentation;
      packets.lastDuration = toTicks(packet.duration);
    }
    packet.unref();
  }
  return packets;
}

function shownPositions({ shown, presentation, firstKey }: Packets): Int32Array {
  const { position: begin, opensGroup } = firstKey ?? { position: 0, opensGroup: false };
  return Int32Array.from(
    shown.flatMap((isShown, position) => {
      const isBefore = position < begin || (opensGroup && presentation[position]! < presentation[begin]!);
      return isShown && !isBefore ? [position] : [];
    }),
  );
}

/** Some files have decoding times in place of presentation times, although their frames are out of order. */
function areTimed({ presentation, decoding }: Packets, positions: Int32Array, videoDelay: number): boolean {
  const isKnown = positions.every((position) => !Number.isNaN(presentation[position]));
  return isKnown && !(videoDelay > 0 && positions.every((position) => presentation[position] === decoding[position]));
}

function toTicks(timestamp: bigint): number {
  return timestamp === NO_TIMESTAMP ? Number.NaN : Number(timestamp);
}

/** Without presentation times, decoding times in ascending order, or null. */
function decodingTicks({ decoding }: Packets, positions: Int32Array): Float64Array | null {
  const ticks = Float64Array.from(positions, (position) => decoding[position]!);
  return ticks.some(Number.isNaN) ? null : ticks.sort();
}

/** @param ticks By index; null if the file has no times. */
function toSeconds(
  numFrames: number,
  ticks: Float64Array | null,
  { stream }: OpenVideo,
  lastDuration: number,
): Pick<FrameTable, "times" | "durationSeconds"> {
  const frameSeconds = 1 / (ratio(stream.avgFrameRate) ?? ASSUMED_FPS);
  const tickSeconds = ratio(stream.timeBase);
  if (ticks === null || tickSeconds === null) {
    return {
      times: Float64Array.from({ length: numFrames }, (_, index) => index * frameSeconds),
      durationSeconds: numFrames * frameSeconds,
    };
  }
  const times = ticks.map((tick) => (tick - ticks[0]!) * tickSeconds);
  const lastSeconds = lastDuration > 0 ? lastDuration * tickSeconds : frameSeconds;
  return { times, durationSeconds: times.at(-1)! + lastSeconds };
}

/** Null unless it is a number above 0. */
function ratio({ num, den }: Rational): number | null {
  return num > 0 && den > 0 ? num / den : null;
}
