/** Facts about videos, and their frames: the results that leave the decoder. */

export interface VideoFacts {
  /** In pixels, as shown: the rotation that the file asks for is applied. Pixels that are not square stay as they are. */
  readonly width: number;
  readonly height: number;
  /** Presentation times in seconds, ascending from 0, one for each frame. */
  readonly frameTimes: Float64Array;
  /** Until the end of the last frame; above 0. */
  readonly durationSeconds: number;
  /** Average number of frames per second. */
  readonly fps: number;
}

export interface VideoFrame {
  /** In presentation order, from 0. */
  readonly index: number;
  readonly width: number;
  readonly height: number;
  /** RGB, row-major [height, width, 3]. Frames of equal indices share it. */
  readonly data: Uint8Array;
}
