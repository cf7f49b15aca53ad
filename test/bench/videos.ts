/**
 * Sixteen frames of a video at equal distances, as RGB: its facts and its frames, by our decoder and by the program
 * ffmpeg, which must be installed and also makes the videos.
 */
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { promisify } from "node:util";

import { equallySpacedFrames } from "../../engine/videos/sample-frames.ts";
import { createVideoDecoder } from "../../engine/videos/video-decoder.ts";
import type { VideoDecoder } from "../../engine/videos/video-decoder.ts";
import { ratioFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { benchFolder } from "./settings.ts";

interface Subject {
  readonly name: string;
  readonly file: string;
  readonly pattern: string;
  readonly encoder: readonly string[];
}

const subjects: readonly Subject[] = [
  {
    name: "H.264, 1280x720, 60 s",
    file: "h264-720p.mp4",
    pattern: "testsrc2=size=1280x720:rate=30:duration=60",
    encoder: ["-c:v", "libx264", "-preset", "veryfast", "-crf", "30"],
  },
  {
    name: "HEVC, 1920x1080, 20 s",
    file: "hevc-1080p.mp4",
    pattern: "testsrc2=size=1920x1080:rate=30:duration=20",
    encoder: ["-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error"],
  },
];

const NUM_FRAMES = 16;
const MAX_OUTPUT_BYTES = 2 ** 30;

const runFile = promisify(execFile);

async function ffmpeg(...options: readonly string[]): Promise<Uint8Array> {
  const { stdout } = await runFile("ffmpeg", ["-v", "error", "-nostdin", "-y", ...options], {
    encoding: "buffer",
    maxBuffer: MAX_OUTPUT_BYTES,
  });
  return stdout;
}

async function makeVideo({ file, pattern, encoder }: Subject): Promise<string> {
  const path = join(benchFolder, "videos", file);
  if (existsSync(path)) return path;
  reportProgress(`making ${file} with ffmpeg`);
  mkdirSync(join(benchFolder, "videos"), { recursive: true });
  await ffmpeg("-f", "lavfi", "-i", pattern, ...encoder, "-pix_fmt", "yuv420p", path);
  return path;
}

const never = new AbortController().signal;

async function decodeByUs(decoder: VideoDecoder, bytes: Uint8Array): Promise<number> {
  const facts = await decoder.readFacts({ bytes }, never);
  const indices = equallySpacedFrames(facts.frameTimes.length, NUM_FRAMES);
  const frames = await decoder.decodeFrames({ bytes }, indices, never);
  return frames.reduce((sum, { data }) => sum + data.byteLength, 0);
}

async function decodeByFfmpeg(path: string, indices: readonly number[]): Promise<number> {
  const select = indices.map((index) => `eq(n\\,${index})`).join("+");
  const frames = ["-vf", `select=${select}`, "-vsync", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "-"];
  return (await ffmpeg("-i", path, ...frames)).byteLength;
}

async function secondsOf(work: () => Promise<number>, numBytes: number): Promise<number> {
  const start = performance.now();
  const given = await work();
  const seconds = (performance.now() - start) / 1_000;
  if (given !== numBytes) throw new Error(`The sides give ${given} and ${numBytes} bytes of frames.`);
  return seconds;
}

export async function benchVideos(rounds: number): Promise<Figure[]> {
  const decoder = createVideoDecoder();
  try {
    const figures: Figure[] = [];
    for (const subject of subjects) {
      const path = await makeVideo(subject);
      const bytes = new Uint8Array(readFileSync(path));
      const { frameTimes } = await decoder.readFacts({ bytes }, never);
      const indices = equallySpacedFrames(frameTimes.length, NUM_FRAMES);
      const numBytes = await decodeByUs(decoder, bytes);
      const ours: number[] = [];
      const theirs: number[] = [];
      for (let round = 0; round < rounds; round++) {
        ours.push(1 / (await secondsOf(() => decodeByUs(decoder, bytes), numBytes)));
        theirs.push(1 / (await secondsOf(() => decodeByFfmpeg(path, indices), numBytes)));
        reportProgress(
          `${subject.name}, round ${round + 1} of ${rounds}: ${(1_000 / ours.at(-1)!).toFixed(0)} ms, ffmpeg ${(1_000 / theirs.at(-1)!).toFixed(0)} ms`,
        );
      }
      figures.push(
        ratioFigure({
          name: `${subject.name}: facts and 16 frames, against ffmpeg`,
          unit: "1/s",
          ours,
          theirs,
          target: 1,
        }),
      );
    }
    return figures;
  } finally {
    await decoder.close();
  }
}
