/**
 * FFmpeg as a native addon: the platform packages of node-av, without its JavaScript half. That half has install scripts
 * that download programs, and depends on a stack of WebRTC. All calls are synchronous; only the decoding process makes them.
 */
import { createRequire } from "node:module";
import { arch, platform } from "node:os";

import { EngineError } from "../contract/errors.ts";

/** `AV_NOPTS_VALUE`. */
export const NO_TIMESTAMP = -(2n ** 63n);
/** `AV_PKT_FLAG_KEY`. */
export const PACKET_KEY = 1;
/** `AV_PKT_FLAG_DISCARD`: the decoder needs the packet, but an edit list leaves out its frame. */
export const PACKET_DISCARD = 4;

/** A fraction: seconds of a tick, or frames per second. */
export interface Rational {
  readonly num: number;
  readonly den: number;
}

/** Memory of FFmpeg. Wrappers are freed by name, because their finalizers run in no particular order. */
export interface NativePacket {
  readonly streamIndex: number;
  pts: bigint;
  readonly dts: bigint;
  readonly duration: bigint;
  readonly flags: number;
  readonly size: number;
  readonly data: Uint8Array | null;
  alloc(): void;
  unref(): void;
  free(): void;
}

export interface NativeFrame {
  readonly pts: bigint;
  format: number;
  width: number;
  height: number;
  colorRange: number;
  colorPrimaries: number;
  colorTrc: number;
  chromaLocation: number;
  flags: number;
  alloc(): void;
  /** Allocates the planes of a frame whose format and size are set. Below 0 for an error. */
  getBuffer(align: number): number;
  /** A copy of the planes without padding. */
  toBuffer(): Uint8Array;
  unref(): void;
  free(): void;
}

interface NativeCodec {
  readonly name: string;
}

export interface NativeCodecParameters {
  readonly codecId: number;
  readonly extradata: Uint8Array | null;
  /** As coded, before rotation. */
  readonly width: number;
  readonly height: number;
  /** Frames that the decoder holds back to bring them into order. */
  readonly videoDelay: number;
  getCodedSideData(type: number): Uint8Array | null;
}

export interface NativeCodecContext {
  allocContext3(codec: NativeCodec): void;
  parametersToContext(parameters: NativeCodecParameters): number;
  /** Its second argument must be null: the addon frees a dictionary there, and frees it again later. */
  open2Sync(codec: NativeCodec, options: null): number;
  sendPacketSync(packet: NativePacket | null): number;
  receiveFrameSync(frame: NativeFrame): number;
  flushBuffers(): void;
  freeContext(): void;
}

export interface NativeStream {
  readonly index: number;
  readonly codecpar: NativeCodecParameters;
  readonly timeBase: Rational;
  readonly avgFrameRate: Rational;
  /** `AVDiscard`. */
  discard: number;
}

interface NativeDictionary {
  alloc(): void;
  set(key: string, value: string, flags: number): number;
  free(): void;
}

export interface NativeIo {
  allocContextWithCallbacks(
    bufferSize: number,
    writeFlag: 0,
    read: (size: number) => Uint8Array | null,
    write: undefined,
    seek: (offset: bigint, whence: number) => bigint,
  ): void;
  freeContext(): void;
}

export interface NativeFormatContext {
  pb: NativeIo | null;
  readonly streams: readonly NativeStream[] | null;
  allocContext(): void;
  /** Frees the context if it fails. */
  openInputSync(url: string, format: null, options: NativeDictionary): number;
  findStreamInfoSync(options: null): number;
  /** Index of a stream, or below 0. */
  findBestStream(type: number, wanted: number, related: number, wantDecoder: false, flags: number): number;
  readFrameSync(packet: NativePacket): number;
  closeInputSync(): void;
}

export interface NativeScaler {
  allocContext(): void;
  /** Takes sizes, formats and colour spaces from both frames. */
  scaleFrameSync(to: NativeFrame, from: NativeFrame): number;
  freeContext(): void;
}

export interface NativeLibrary {
  readonly Packet: new () => NativePacket;
  readonly Frame: new () => NativeFrame;
  readonly Codec: { findDecoder(codecId: number): NativeCodec | null };
  readonly CodecContext: new () => NativeCodecContext;
  readonly FormatContext: new () => NativeFormatContext;
  readonly IOContext: new () => NativeIo;
  readonly Dictionary: new () => NativeDictionary;
  readonly SoftwareScaleContext: new () => NativeScaler;
  readonly Log: { setLevel(level: number): void };
  readonly Option: { set(target: NativeCodecContext, name: string, value: string): number };
  avGetCodecName(codecId: number): string | null;
  avGetPixFmtName(format: number): string | null;
  avGetPixFmtFromName(name: string): number;
}

/** `AV_LOG_QUIET`: messages contain text of the video. */
const LOG_QUIET = -8;

/** The package of this machine, whether or not it exists. */
function packageName(): string {
  return `@seydx/node-av-${platform()}-${arch()}${platform() === "win32" ? "-msvc" : ""}`;
}

/**
 * Throws unless the package is installed. Loads nothing.
 *
 * @throws EngineError `invalid_argument` with the command that installs it.
 */
export function requireNativeLibrary(): void {
  try {
    createRequire(import.meta.url).resolve(packageName());
  } catch (cause) {
    throw new EngineError(
      "invalid_argument",
      `Videos are not supported by this installation: the optional package ${packageName()} is missing. ` +
        `Run npm install ${packageName()}, which has FFmpeg under the GPL.`,
      { cause },
    );
  }
}

/** Throws Error if the package is missing or was built for another system. Takes 10 to 30 ms. */
export function loadNativeLibrary(): NativeLibrary {
  const library = createRequire(import.meta.url)(packageName()) as NativeLibrary;
  library.Log.setLevel(LOG_QUIET);
  return library;
}
