/** One process that decodes videos, as its parent sees it. It may crash, hang or write anything. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import type { Socket } from "node:net";
import { execPath } from "node:process";
import { fileURLToPath } from "node:url";

import { invariant } from "../contract/errors.ts";
import { moduleUrl } from "../module-url.ts";
import { encodeHeader, type VideoWork } from "./process-messages.ts";
import { ReplyReader, type ReplyTaker } from "./reply-reader.ts";
import type { VideoReply } from "./video-reply.ts";

/** The process ended, or was ended because it broke the rules of the exchange. */
export class DecoderProcessEnded extends Error {
  override readonly name = "DecoderProcessEnded";
  /** Whether the process had read the video. If not, the video is not the reason; otherwise it may be. */
  readonly hadStarted: boolean;

  constructor(hadStarted: boolean, reason: string) {
    super(`The process that decodes videos ended: ${reason}.`);
    this.hadStarted = hadStarted;
  }
}

export interface DecoderProcess {
  /** Undefined if it could not be started. */
  readonly pid: number | undefined;
  /** True from `end`, or from when the end of the process was noticed. */
  readonly hasEnded: boolean;
  /** Resolves when the process has ended and is no more. */
  readonly ended: Promise<void>;
  /**
   * Sends one video and hands its replies to `taker`, up to the last. One at a time. Throws DecoderProcessEnded, also for
   * replies that make no sense or that `taker` does not accept.
   */
  work(work: VideoWork, bytes: Uint8Array, taker: ReplyTaker): Promise<void>;
  /** Kills the process. Idempotent. */
  end(): void;
  /** Whether the process keeps its parent alive. True at first. */
  setReferenced(isReferenced: boolean): void;
}

/** Far above what the packets of the longest video need. */
const MAX_OLD_SPACE_MEBIBYTES = 512;

/** In the order of decoder-process-main.ts: work, replies, and one that only closes. */
const FIRST_PIPE = 3;

interface CurrentWork {
  readonly taker: ReplyTaker;
  readonly finished: PromiseWithResolvers<void>;
  hasStarted: boolean;
}

/** @param maxMemoryBytes See `confineProcess`. */
export function startDecoderProcess(maxMemoryBytes: number): DecoderProcess {
  const entry = fileURLToPath(moduleUrl("./decoder-process-main", import.meta.url));
  const child = spawn(
    execPath,
    [`--max-old-space-size=${MAX_OLD_SPACE_MEBIBYTES}`, entry, String(maxMemoryBytes)],
    // No environment, which may have secrets and options for Node.
    { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe", "pipe"], env: {}, windowsHide: true },
  );
  const sockets = child.stdio.slice(FIRST_PIPE) as Socket[];
  const [workPipe, replyPipe] = sockets as [Socket, Socket];
  let current: CurrentWork | null = null;
  let reason = "";
  let hasEnded = false;

  const end = (because: string): void => {
    reason ||= because;
    hasEnded = true;
    child.kill("SIGKILL");
  };
  const finish = (error: Error | null): void => {
    const finished = current?.finished;
    current = null;
    if (error === null) finished?.resolve();
    else finished?.reject(error);
  };
  const reader = new ReplyReader({
    accept(reply) {
      if (current === null) throw new Error("no reply is expected");
      current.taker.accept(reply);
    },
    take(reply, payload) {
      if (current === null) return;
      if (reply.kind === "started") current.hasStarted = true;
      else current.taker.take(reply, payload);
      if (isLast(reply)) finish(null);
    },
  });

  // A pipe breaks when the process ends, which `close` reports.
  for (const socket of sockets) socket.on("error", () => {});
  child.on("error", (error) => end(error.message));
  replyPipe.on("data", (chunk: Buffer) => {
    if (hasEnded) return;
    try {
      reader.read(chunk);
    } catch (error) {
      end(`it wrote something unexpected (${String(error)})`);
    }
  });
  const waitForEnd = async (): Promise<void> => {
    // An error of the child itself is one of its start.
    await once(child, "close").catch(() => {});
    hasEnded = true;
    const { exitCode, signalCode } = child;
    const why = reason || (signalCode ?? `exit code ${exitCode}`);
    finish(new DecoderProcessEnded(current?.hasStarted ?? false, why));
  };
  const ended = waitForEnd();

  return {
    pid: child.pid,
    ended,
    get hasEnded() {
      return hasEnded;
    },
    async work(work, bytes, taker) {
      invariant(current === null, "a decoding process has one video at a time");
      const finished = Promise.withResolvers<void>();
      current = { taker, finished, hasStarted: false };
      workPipe.write(encodeHeader(work));
      workPipe.write(bytes);
      await finished.promise;
    },
    end: () => end("it was told to"),
    setReferenced(isReferenced) {
      for (const handle of [child, ...sockets]) {
        if (isReferenced) handle.ref();
        else handle.unref();
      }
    },
  };
}

function isLast({ kind }: VideoReply): boolean {
  return kind === "facts" || kind === "done" || kind === "refused";
}
