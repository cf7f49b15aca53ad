/** Opens a container in memory and finds its video stream. */
import { EngineError } from "../contract/errors.ts";
import type { Orientation } from "../images/orientation.ts";
import { containerNames, foreignContainerOf, isIsoFile } from "./container-names.ts";
import type { NativeFormatContext, NativeIo, NativeLibrary, NativePacket, NativeStream } from "./native-library.ts";
import { readOrientation } from "./orientation.ts";

/**
 * Demuxers that read one file of their own. Others, such as those of HLS, DASH and lists of files, open the files and
 * addresses that they name.
 */
const containers = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,gif,webp_anim";

/** Decoders that the probe and the decoding may open. */
const decoders = [
  "h264",
  "hevc",
  "libdav1d",
  "vp9",
  "vp8",
  "mpeg4",
  "mpeg2video",
  "mpeg1video",
  "mjpeg",
  "prores",
  "gif",
  "webp_anim",
] as const;

/** `AVMEDIA_TYPE_VIDEO`. */
const MEDIA_VIDEO = 0;
/** `AVDISCARD_ALL`. */
const DISCARD_ALL = 48;
/** `AVSEEK_SIZE`, asked with the kinds of `lseek`. */
const SEEK_SIZE = 0x1_00_00;
const SEEK_SET = 0;
const SEEK_CURRENT = 1;
/** Bytes that the demuxer reads at a time. */
const IO_BUFFER_BYTES = 65_536;
const MAX_STREAMS = 64;

export interface OpenVideo {
  readonly stream: NativeStream;
  /** Name of the decoder. */
  readonly decoder: string;
  readonly orientation: Orientation;
  /**
   * Reads the next packet of the stream into `packet`, which the caller unrefs before the next call. False at the end,
   * which may be early in a broken file.
   */
  readPacket(packet: NativePacket): boolean;
  close(): void;
}

/** @throws EngineError `invalid_video` or `video_too_large`. */
export function openVideo(library: NativeLibrary, bytes: Uint8Array, maxVideoPixels: number): OpenVideo {
  const io = openBytes(library, bytes);
  const context = new library.FormatContext();
  context.allocContext();
  context.pb = io;
  const close = (): void => {
    // Cleared first, so that the context does not use what is freed next.
    context.pb = null;
    context.closeInputSync();
    io.freeContext();
  };
  if (!openContainer(library, context)) {
    io.freeContext();
    throw unsupportedContainer(bytes);
  }
  try {
    // A size in the header is checked before the probe, which may decode.
    for (const { codecpar } of context.streams ?? []) checkSize(codecpar, maxVideoPixels);
    context.findStreamInfoSync(null);
    const index = context.findBestStream(MEDIA_VIDEO, -1, -1, false, 0);
    const stream = context.streams?.[index];
    if (stream === undefined) throw invalidVideo("The file has no video stream.");
    const { codecpar } = stream;
    const decoder = findDecoder(library, codecpar.codecId);
    checkSize(codecpar, maxVideoPixels);
    if (codecpar.width < 1 || codecpar.height < 1) throw couldNotBeDecoded();
    for (const other of context.streams ?? []) if (other.index !== index) other.discard = DISCARD_ALL;
    return {
      stream,
      decoder,
      orientation: readOrientation(codecpar),
      readPacket(packet) {
        while (context.readFrameSync(packet) >= 0) {
          if (packet.streamIndex === index) return true;
          packet.unref();
        }
        return false;
      },
      close,
    };
  } catch (error) {
    close();
    throw error;
  }
}

function openContainer(library: NativeLibrary, context: NativeFormatContext): boolean {
  const options = new library.Dictionary();
  options.alloc();
  options.set("format_whitelist", containers, 0);
  options.set("codec_whitelist", decoders.join(","), 0);
  // The name of no protocol, so that a container that refers to files or addresses reaches none.
  options.set("protocol_whitelist", "none", 0);
  options.set("max_streams", String(MAX_STREAMS), 0);
  try {
    return context.openInputSync("", null, options) >= 0;
  } finally {
    options.free();
  }
}

function openBytes(library: NativeLibrary, bytes: Uint8Array): NativeIo {
  let position = 0;
  const io = new library.IOContext();
  io.allocContextWithCallbacks(
    IO_BUFFER_BYTES,
    0,
    (size) => {
      if (position >= bytes.byteLength) return null;
      const read = bytes.subarray(position, position + size);
      position += read.byteLength;
      return read;
    },
    undefined,
    (offset, whence) => {
      if (whence === SEEK_SIZE) return BigInt(bytes.byteLength);
      const origin = whence === SEEK_SET ? 0 : whence === SEEK_CURRENT ? position : bytes.byteLength;
      position = Math.min(Math.max(origin + Number(offset), 0), bytes.byteLength);
      return BigInt(position);
    },
  );
  return io;
}

function findDecoder(library: NativeLibrary, codecId: number): string {
  const found = library.Codec.findDecoder(codecId)?.name;
  const decoder = decoders.find((name) => name === found);
  if (decoder !== undefined) return decoder;
  throw invalidVideo(
    `The codec ${library.avGetCodecName(codecId) ?? codecId} of the video is not supported; these are: H.264, HEVC, AV1, ` +
      "VP9, VP8, MPEG-4, MPEG-2, MPEG-1, Motion JPEG, ProRes, GIF, WebP.",
  );
}

function checkSize({ width, height }: { readonly width: number; readonly height: number }, maxPixels: number): void {
  if (width * height <= maxPixels) return;
  throw new EngineError(
    "video_too_large",
    `The video has ${width}x${height} = ${width * height} pixels; the limit is ${maxPixels}.`,
  );
}

/** The error of bytes that look like a video and are none. */
export function couldNotBeDecoded(cause?: unknown): EngineError {
  return new EngineError("invalid_video", "The video could not be decoded.", { cause });
}

function unsupportedContainer(bytes: Uint8Array): EngineError {
  if (isIsoFile(bytes)) {
    return invalidVideo("The MP4 or MOV file is incomplete or broken: its index (moov) is missing or cannot be read.");
  }
  const foreign = foreignContainerOf(bytes);
  return invalidVideo(
    foreign === null
      ? `The ${bytes.byteLength} bytes are not a video in a supported container: ${containerNames}.`
      : `The video is ${foreign}. The supported containers are ${containerNames}: convert it to one of them.`,
  );
}

function invalidVideo(message: string): EngineError {
  return new EngineError("invalid_video", message);
}
