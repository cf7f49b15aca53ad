/**
 * Entry of the process that decodes videos. It reads work from one pipe and writes replies to another, with blocking calls.
 * A thread watches a third one, whose other end closes with the service, and then ends the process, even from within a
 * decoder that never returns.
 */
import { once } from "node:events";
import { readSync, writeSync } from "node:fs";
import process from "node:process";
import { setImmediate } from "node:timers/promises";
import { Worker } from "node:worker_threads";

import { EngineError } from "../contract/errors.ts";
import { confineProcess } from "./confine-process.ts";
import { loadNativeLibrary, type NativeLibrary } from "./native-library.ts";
import { encodeHeader, type VideoWork } from "./process-messages.ts";
import type { VideoReply } from "./video-reply.ts";
import { workOnVideo } from "./work-on-video.ts";

/** Not the standard ones, which Node makes non-blocking. */
const WORK_PIPE = 3;
const REPLY_PIPE = 4;
const WATCHED_PIPE = 5;

/** Source of the watching thread, which has no types to strip and nothing to load. */
const watchingThread = `
  const { Socket } = require("node:net");
  const { parentPort } = require("node:worker_threads");
  new Socket({ fd: ${WATCHED_PIPE} }).on("close", () => process.kill(process.pid, "SIGKILL")).on("error", () => {}).resume();
  parentPort.postMessage("watching");
`;

/** Null at the end of the input. */
function readBytes(numBytes: number): Uint8Array | null {
  const bytes = Buffer.allocUnsafeSlow(numBytes);
  for (let position = 0; position < numBytes;) {
    const numRead = readSync(WORK_PIPE, bytes, position, numBytes - position, null);
    if (numRead === 0) return null;
    position += numRead;
  }
  return bytes;
}

function writeBytes(bytes: Uint8Array): void {
  for (let position = 0; position < bytes.byteLength;) {
    position += writeSync(REPLY_PIPE, bytes, position, bytes.byteLength - position);
  }
}

function send(reply: VideoReply, payload?: Uint8Array): void {
  writeBytes(encodeHeader(reply));
  if (payload !== undefined) writeBytes(payload);
}

function refusalOf(error: unknown): VideoReply {
  const isTooLarge = error instanceof EngineError && error.code === "video_too_large";
  const message = error instanceof EngineError ? error.message : "The video could not be decoded.";
  return { kind: "refused", code: isTooLarge ? "video_too_large" : "invalid_video", message };
}

/** Null at the end of the input. */
function readWork(): { readonly work: VideoWork; readonly bytes: Uint8Array } | null {
  const length = readBytes(4);
  const header = length && readBytes(new DataView(length.buffer, length.byteOffset).getUint32(0, true));
  if (!header) return null;
  const work = JSON.parse(new TextDecoder().decode(header)) as VideoWork;
  const bytes = readBytes(work.numBytes);
  return bytes && { work, bytes };
}

/** Null if it does not load. */
function tryLoadLibrary(): NativeLibrary | null {
  try {
    return loadNativeLibrary();
  } catch {
    return null;
  }
}

/** Without the reason, which names folders of this machine. */
function unsupported(): VideoReply {
  return {
    kind: "refused",
    code: "invalid_argument",
    message: "Videos are not supported by this installation: FFmpeg does not load. On Linux, it needs glibc 2.28.",
  };
}

async function serve(maxMemoryBytes: number): Promise<void> {
  // Signals to the whole group, such as Control-C, are for the service, which may still serve requests.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => {});
  await once(new Worker(watchingThread, { eval: true }), "message");
  const library = tryLoadLibrary();
  confineProcess(maxMemoryBytes);
  for (let next = readWork(); next !== null; next = readWork()) {
    try {
      send({ kind: "started" });
      if (library === null) send(unsupported());
      else workOnVideo(library, next.bytes, next.work, send);
    } catch (error) {
      send(refusalOf(error));
    }
    next = null;
    // The event loop frees what the garbage collector has found in the addon's memory.
    await setImmediate();
  }
}

try {
  await serve(Number(process.argv[2]));
} finally {
  // Not an exit, which would run the addon's destructors.
  process.kill(process.pid, "SIGKILL");
}
