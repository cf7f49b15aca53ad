/** Web servers around the service: one from which it may fetch pictures, and one that it must never reach. */
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";

import { startWebServer } from "../engine/images/web-server.ts";
import type { Surroundings } from "./attack.ts";
import { sceneUrl } from "./generators/bodies.ts";
import { createSecret, openSurroundings } from "./surroundings.ts";

const scene = Buffer.from(sceneUrl.slice(sceneUrl.indexOf(",") + 1), "base64");

/** Maximum number of pictures per request. */
export const MAX_PICTURES = 16;

/** Misbehaviours of a picture server, by the requested path. */
const answersByHabit: Readonly<Record<string, (response: ServerResponse, request: IncomingMessage) => void>> = {
  picture: (response) => response.end(scene),
  "picture-in-gzip": (response) => response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(scene)),
  "bomb-in-gzip": (response) =>
    response.writeHead(200, { "content-encoding": "gzip" }).end(gzipSync(Buffer.alloc(32 * 2 ** 20))),
  "too-long": (response) => response.writeHead(200, { "content-length": 2 ** 40 }).write(scene),
  "too-short": (response) => response.writeHead(200, { "content-length": 10 }).end(scene.subarray(0, 10)),
  "cut-off": (response) => {
    response.writeHead(200, { "content-length": scene.byteLength }).write(scene.subarray(0, 100));
    response.destroy();
  },
  endless: (response) => {
    const chunk = Buffer.alloc(65_536, 0x89);
    const write = (): void => {
      while (!response.destroyed && response.write(chunk));
      if (!response.destroyed) response.once("drain", write);
    };
    write();
  },
  silent: () => {},
  "half-a-head": (response) => response.socket?.write("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n"),
  "no-http": (response) => response.socket?.end("SSH-2.0-a\r\n"),
  reset: (_, request) => request.socket.resetAndDestroy(),
  "many-headers": (response) => {
    for (let index = 0; index < 3000; index++) response.setHeader(`x-${index}`, "a".repeat(50));
    response.end(scene);
  },
  "not-modified": (response) => response.writeHead(304).end(),
  "part-of-it": (response) => response.writeHead(206, { "content-range": "bytes 0-9/100" }).end(scene.subarray(0, 10)),
  "no-content": (response) => response.writeHead(204).end(),
  "switching-protocols": (response) => response.socket?.end("HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\n\r\n"),
  early: (response) => response.socket?.end("HTTP/1.1 103 Early Hints\r\n\r\n".repeat(2000)),
  "bad-tag": (response) => response.writeHead(200, { etag: '"\u00ff', "last-modified": "never" }).end(scene),
  page: (response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>"),
  "server-error": (response) => response.writeHead(500).end(),
  unauthorized: (response) => response.writeHead(401, { "www-authenticate": "Basic" }).end(),
};

/** Paths of the friendly server. */
export const habits: readonly string[] = Object.keys(answersByHabit);

/** Misbehaves by path, and answers `/redirect/STATUS/LOCATION`. */
const answerByPath: RequestListener = (request, response) => {
  const [, name, status, location] = (request.url ?? "/").split("/");
  if (name !== "redirect") return (answersByHabit[name ?? ""] ?? answersByHabit.picture!)(response, request);
  // As bytes, because Node refuses to set what attacks need.
  response.socket?.end(
    Buffer.from(`HTTP/1.1 ${status} Moved\r\nLocation: ${decode(location!)}\r\nContent-Length: 0\r\n\r\n`),
  );
};

/** Invalid encodings are left unchanged: the fetcher may have changed the path. */
function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export interface WebSurroundings extends Surroundings {
  /** `127.0.0.1:port` of a server from which pictures may be fetched. */
  readonly friend: string;
  /** Port of a server that must never see a connection. */
  readonly forbiddenPort: number;
}

export async function prepareWeb(): Promise<WebSurroundings> {
  const secret = createSecret("forbidden");
  const forbidden = await startWebServer((_, response) => response.end(secret), null);
  const friend = await startWebServer(answerByPath, null);
  const open = await openSurroundings({
    ALLOW_HTTP_IMAGES: "true",
    ALLOWED_PRIVATE_HOSTS: friend.host,
    IMAGE_FETCH_TIMEOUT_SECONDS: "0.2",
    MAX_IMAGE_BYTES: "1MiB",
    MAX_MODEL_LEN: "2048",
    LIMIT_MM_PER_PROMPT: `{"image": ${MAX_PICTURES}}`,
  });
  let numSeen = 0;
  return {
    ...open,
    secrets: [...open.secrets, secret],
    friend: friend.host,
    forbiddenPort: forbidden.port,
    takeProblems() {
      const numNew = forbidden.numConnections() - numSeen;
      numSeen += numNew;
      return numNew === 0 ? [] : [`A server of a private network was connected to, ${numNew} times.`];
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([forbidden.stop(), friend.stop(), open[Symbol.asyncDispose]()]);
    },
  };
}
