/** A program that never ends by itself: it has an idle decoding process, or reads none of what its process writes. */
import { createVideoDecoder } from "../../../engine/videos/video-decoder.ts";
import { decoderProcessIds, waitUntilWritten } from "./decoder-processes.ts";
import { never, readVideo, upTo } from "./videos.ts";

const bytes = readVideo("long.mp4");
const decoder = createVideoDecoder({ numProcesses: 1 });
await decoder.readFacts({ bytes }, never);
setInterval(() => {}, 1_000_000);
if (process.argv[2] === "decoding") {
  void decoder.decodeFrames({ bytes }, upTo(500), never);
  waitUntilWritten(decoderProcessIds()[0]!, 100_000);
}
process.stdout.write("ready");
if (process.argv[2] === "decoding") Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
