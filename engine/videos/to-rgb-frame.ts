/** Converts decoded frames to RGB as FFmpeg's command line does by default: bicubic, by the frame's own colour space. */
import { orient } from "../images/orientation.ts";
import { toRgb } from "../images/to-rgb.ts";
import type { NativeFrame, NativeLibrary } from "./native-library.ts";
import type { OpenVideo } from "./open-video.ts";

/** `AVCOL_RANGE_JPEG`: RGB uses all values. */
const FULL_RANGE = 2;
/** `AVCHROMA_LOC_UNSPECIFIED`. */
const UNSPECIFIED = 0;
/** `AV_FRAME_FLAG_INTERLACED` and `AV_FRAME_FLAG_TOP_FIELD_FIRST`. */
const FIELD_FLAGS = 0b1_1000;
/** Alignment that FFmpeg chooses itself; its vector code writes beyond narrower rows. */
const AUTOMATIC_ALIGNMENT = 0;

/** Names of FFmpeg's pixel formats with alpha. */
const withAlpha = /^(?:yuva|gbrap|rgba|bgra|argb|abgr|ya\d|pal8)/;

export interface RgbConverter {
  /** RGB, row-major [height, width, 3] as shown; transparency on white. Null if FFmpeg cannot convert the frame. */
  convert(frame: NativeFrame): Uint8Array | null;
  free(): void;
}

/** All frames get the size of the stream, also those of a file that changes its size on the way. */
export function createRgbConverter(library: NativeLibrary, { stream, orientation }: OpenVideo): RgbConverter {
  const { width, height } = stream.codecpar;
  const scaler = new library.SoftwareScaleContext();
  scaler.allocContext();
  const convertTo = (format: string, frame: NativeFrame): Uint8Array | null => {
    const converted = new library.Frame();
    converted.alloc();
    try {
      converted.format = library.avGetPixFmtFromName(format);
      converted.width = width;
      converted.height = height;
      converted.colorRange = FULL_RANGE;
      // Equal, so that the colours of HDR are not mapped to those of other screens.
      converted.colorPrimaries = frame.colorPrimaries;
      converted.colorTrc = frame.colorTrc;
      if (converted.getBuffer(AUTOMATIC_ALIGNMENT) < 0 || scaler.scaleFrameSync(converted, frame) < 0) return null;
      return converted.toBuffer();
    } finally {
      converted.free();
    }
  };
  return {
    convert(frame) {
      // Both fields are shown as one picture, like OpenCV and the command line do.
      frame.flags &= ~FIELD_FLAGS;
      // Where colours were sampled counts in FFmpeg 8 only, and only beyond 8 bits.
      frame.chromaLocation = UNSPECIFIED;
      const hasAlpha = withAlpha.test(library.avGetPixFmtName(frame.format) ?? "");
      const pixels = convertTo(hasAlpha ? "rgba" : "rgb24", frame);
      if (pixels === null) return null;
      return orient(hasAlpha ? toRgb(pixels, "rgb-alpha") : pixels, { width, height }, orientation);
    },
    free: () => scaler.freeContext(),
  };
}
