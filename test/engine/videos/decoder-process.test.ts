import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { setImmediate } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterEach, expect, test } from "vitest";

import { createVideoDecoder } from "../../../engine/videos/video-decoder.ts";
import type { VideoDecoder } from "../../../engine/videos/video-decoder.ts";
import { decoderProcessIds, waitUntilWritten } from "./decoder-processes.ts";
import { decodeAll, hashOf, never, readVideo, recordedVideos, upTo } from "./videos.ts";

/** 500 frames of 9,216 bytes, more than pipes hold. */
const long = readVideo("long.mp4");
const everyFrame = upTo(500);
/** Bytes after which the process is in the middle of them. */
const SOME_BYTES = 100_000;

const created: VideoDecoder[] = [];
function createDecoder(limits?: Parameters<typeof createVideoDecoder>[0]): VideoDecoder {
  const decoder = createVideoDecoder(limits);
  created.push(decoder);
  return decoder;
}

afterEach(async () => {
  for (const decoder of created.splice(0)) await decoder.close();
  const left = decoderProcessIds();
  if (left.length > 0) throw new Error(`The processes ${left.join(", ")} are left.`);
});

async function expectToServe(decoder: VideoDecoder): Promise<void> {
  const frames = await decodeAll(decoder, readVideo("h264-b-frames.mp4"));
  expect(frames.map(hashOf)).toEqual(recordedVideos["h264-b-frames.mp4"]!.hashes);
}

/** A decoder in the middle of a video, with its process. */
async function startDecoding(signal = never): Promise<{
  readonly decoder: VideoDecoder;
  readonly outcome: Promise<unknown>;
  readonly id: number;
}> {
  const decoder = createDecoder({ numProcesses: 1 });
  await decoder.readFacts({ bytes: long }, never);
  const outcome = decoder.decodeFrames({ bytes: long }, everyFrame, signal).catch((error: unknown) => error);
  const [id] = decoderProcessIds();
  waitUntilWritten(id!, SOME_BYTES);
  return { decoder, outcome, id: id! };
}

/** Waits for a process of this test other than those of `ids`, and until it is in the middle of its work. */
async function nextProcess(...ids: readonly number[]): Promise<number> {
  for (;;) {
    const id = decoderProcessIds().find((found) => !ids.includes(found));
    if (id !== undefined) {
      waitUntilWritten(id, SOME_BYTES);
      return id;
    }
    await setImmediate();
  }
}

test("videos whose process is killed are decoded by the next one, and so are those that wait", async () => {
  const { decoder, outcome, id } = await startDecoding();
  const waiting = upTo(2).map(() => decoder.decodeFrames({ bytes: long }, everyFrame, never));
  process.kill(id, "SIGKILL");
  expect(await outcome).toHaveLength(500);
  const [second, ...more] = decoderProcessIds();
  expect([second === id, more]).toEqual([false, []]);
  process.kill(second!, "SIGKILL");
  for (const frames of await Promise.all(waiting)) expect(frames).toHaveLength(500);
  await expectToServe(decoder);
  expect(decoderProcessIds()).not.toContain(second);
});

test("a video whose processes are killed twice is rejected, and those that wait are not", async () => {
  const { decoder, outcome, id } = await startDecoding();
  const waiting = decoder.readFacts({ bytes: long }, never);
  process.kill(id, "SIGKILL");
  process.kill(await nextProcess(id), "SIGKILL");
  expect(await outcome).toMatchObject({
    code: "invalid_video",
    message:
      "The process that decodes videos ended twice while it worked on this one. The video is broken, or needs more memory than there is for it.",
    cause: { message: "The process that decodes videos ended: SIGKILL." },
  });
  expect((await waiting).frameTimes).toHaveLength(500);
  await expectToServe(decoder);
});

test("videos in two processes that are killed together are both decoded", async () => {
  const decoder = createDecoder({ numProcesses: 2 });
  const outcomes = upTo(2).map(() => decoder.decodeFrames({ bytes: long }, everyFrame, never));
  const ids = decoderProcessIds();
  expect(ids).toHaveLength(2);
  for (const id of ids) waitUntilWritten(id, SOME_BYTES);
  for (const id of ids) process.kill(id, "SIGKILL");
  for (const frames of await Promise.all(outcomes)) expect(frames).toHaveLength(500);
});

test("idle processes that are killed together lose no video", async () => {
  const decoder = createDecoder({ numProcesses: 2 });
  await Promise.all(upTo(2).map(() => decoder.readFacts({ bytes: long }, never)));
  const ids = decoderProcessIds();
  expect(ids).toHaveLength(2);
  for (const id of ids) process.kill(id, "SIGKILL");
  expect((await decoder.readFacts({ bytes: long }, never)).frameTimes).toHaveLength(500);
});

test("a broken video is the last one of its process", async () => {
  const decoder = createDecoder({ numProcesses: 1 });
  await decoder.readFacts({ bytes: long }, never);
  const [id] = decoderProcessIds();
  await expect(decoder.readFacts({ bytes: long.subarray(0, 1000) }, never)).rejects.toMatchObject({
    code: "invalid_video",
  });
  await expectToServe(decoder);
  expect(decoderProcessIds()).not.toContain(id);
});

test("a process that is killed before it reads a video loses none", async () => {
  const decoder = createDecoder({ numProcesses: 1 });
  await decoder.readFacts({ bytes: long }, never);
  const [id] = decoderProcessIds();
  process.kill(id!, "SIGSTOP");
  const facts = decoder.readFacts({ bytes: long }, never);
  process.kill(id!, "SIGKILL");
  expect((await facts).frameTimes).toHaveLength(500);
});

test("an aborted video ends its process, and the next video has another", async () => {
  const aborting = new AbortController();
  const { decoder, outcome, id } = await startDecoding(aborting.signal);
  aborting.abort();
  expect(await outcome).toMatchObject({ code: "aborted" });
  await expectToServe(decoder);
  expect(decoderProcessIds()).not.toContain(id);
});

test("closing in the middle of a video leaves no process", async () => {
  const { decoder, outcome } = await startDecoding();
  await decoder.close();
  expect(decoderProcessIds()).toEqual([]);
  expect(await outcome).toMatchObject({ code: "closed" });
});

test("a video that runs over its time is rejected, and the next one is served", async () => {
  const decoder = createDecoder({ numProcesses: 1 });
  await decoder.readFacts({ bytes: long }, never);
  const [id] = decoderProcessIds();
  const impatient = createDecoder({ videoDecodeTimeoutMs: 1 });
  await expect(impatient.decodeFrames({ bytes: long }, everyFrame, never)).rejects.toMatchObject({
    code: "video_too_large",
    message: "Decoding the video takes longer than 1 ms.",
    setting: "videoDecodeTimeoutMs",
  });
  await expectToServe(decoder);
  expect(decoderProcessIds()).toContain(id);
});

test("the process has no environment, opens no files, and keeps its limits", async () => {
  process.env.FOVEA_SECRET_OF_A_TEST = "secret";
  try {
    await expectToServe(createDecoder());
    const [id] = decoderProcessIds();
    expect(readFileSync(`/proc/${id}/environ`, "latin1")).toBe("");
    const limits = readFileSync(`/proc/${id}/limits`, "latin1");
    expect(limits).toMatch(/^Max open files +0 +0 /m);
    expect(limits).toMatch(/^Max core file size +0 +0 /m);
    expect(limits).toMatch(/^Max data size +(\d+) +\1 /m);
  } finally {
    delete process.env.FOVEA_SECRET_OF_A_TEST;
  }
});

test("signals to the whole group do not end the process, which the service may still need", async () => {
  const { outcome, id } = await startDecoding();
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.kill(id, signal);
  expect(await outcome).toHaveLength(500);
});

test.for(["idle", "decoding"])("a process that is %s ends when its parent is killed", async (state) => {
  const parent = spawn(process.execPath, [fileURLToPath(new URL("decode-forever.ts", import.meta.url)), state], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  await once(parent.stdout, "data");
  const [id] = decoderProcessIds(parent.pid);
  expect(id).toBeGreaterThan(0);
  const exited = once(parent, "exit");
  parent.kill("SIGKILL");
  await exited;
  await expect.poll(() => isAlive(id!)).toBe(false);
});

function isAlive(id: number): boolean {
  try {
    // A process that init has not collected yet is dead, too.
    return !/\) Z /.test(readFileSync(`/proc/${id}/stat`, "latin1"));
  } catch {
    return false;
  }
}
