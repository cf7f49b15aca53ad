import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { gzipSync } from "node:zlib";
import * as fc from "fast-check";

import { startWebServer } from "../../engine/images/web-server.ts";
import { shorten } from "../attack.ts";
import type { Attack, AttackClass, Surroundings } from "../attack.ts";
import { sceneUrl } from "../generators/bodies.ts";
import { trickyTexts } from "../generators/hostile-json.ts";
import { createSecret, openSurroundings } from "../surroundings.ts";

const scene = Buffer.from(sceneUrl.slice(sceneUrl.indexOf(",") + 1), "base64");

/** Addresses of this machine in spellings that parsers read differently. None of them leads anywhere else. */
const loopbackSpellings = [
  "127.0.0.1",
  "127.1",
  "127.0.1",
  "0.0.0.0",
  "0",
  "2130706433",
  "0x7f000001",
  "0x7F.0.0.1",
  "017700000001",
  "0177.0.0.01",
  "127.000.000.001",
  "127.0.0.1.",
  "localhost",
  "LOCALHOST",
  "[::1]",
  "[0:0:0:0:0:0:0:1]",
  "[::]",
  "[::ffff:127.0.0.1]",
  "[::ffff:7f00:1]",
  "[::ffff:0:127.0.0.1]",
  "[::127.0.0.1]",
  "①②⑦.⓪.⓪.①",
  "１２７.０.０.１",
  "127。0。0。1",
  "127.0.0.1%00",
  "127.0.0.1%2f",
  "user@127.0.0.1",
  "user:password@127.0.0.1",
  "a.b@127.0.0.1",
  "127.0.0.1:80@127.0.0.1",
  "1\t27.0.0.1",
  "127.0.0.1\\@localhost",
] as const;

/** Around an address: what a URL may look like. `%` stands for the address and its port. */
const urlShapes = [
  "http://%/a.png",
  "https://%/a.png",
  "HTTP://%/a.png",
  "http:%/a.png",
  "http:/%/a.png",
  "http:///%/a.png",
  "http:\\\\%\\a.png",
  " http://%/a.png ",
  "\thttp://%/a.png\n",
  "http://%",
  "http://%?a=b#c",
  "http://%#@example.invalid/",
  "//%/a.png",
  "ftp://%/a.png",
  "gopher://%/_a",
  "ws://%/a",
  "file://%/etc/hostname",
  "dict://%/a",
  "jar:http://%/a!/b",
  "view-source:http://%/",
  "s3://%/a.png",
  "s3://bucket@%/a.png",
] as const;

const otherReferences = [
  "file:///etc/hostname",
  "file:/etc/hostname",
  "/etc/hostname",
  "../../package.json",
  "\\\\127.0.0.1\\share\\a.png",
  "javascript:alert(1)",
  "blob:null/a",
  "about:blank",
  "data:",
  "data:,",
  "data:;base64",
  "data:image/png;base64,",
  "data:image/png;base64,====",
  "data:image/png;base64,%%%",
  `data:image/png;${"a=b;".repeat(2000)}base64,AAAA`,
  "s3://",
  "s3:///",
  "s3://bucket",
  "s3://bucket/",
  "s3://bucket/../../a",
  "s3://bucket/a?versionId=b",
  "s3://Bucket_/%00",
  `s3://bucket/${"a".repeat(2000)}`,
  "s3://a.b/..",
  "http://",
  "http:",
  "http://[",
  "http://[::1",
  "http://[v1.a]/",
  "http://a:b/",
  "http://127.0.0.1:0/",
  "http://127.0.0.1:65536/",
  "http://127.0.0.1:-1/",
  `http://${"a".repeat(300)}.invalid/`,
  `http://127.0.0.1/${"a".repeat(20_000)}`,
] as const;

/** What a server of pictures may do instead of sending one, by the path that asks for it. */
const habits: Readonly<Record<string, (response: ServerResponse, request: IncomingMessage) => void>> = {
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

/** Answers by `habits`, and `/redirect/STATUS/LOCATION`. */
const answerByPath: RequestListener = (request, response) => {
  const [, name, status, location] = (request.url ?? "/").split("/");
  if (name !== "redirect") return (habits[name] ?? habits.picture)(response, request);
  // As bytes: Node refuses to set what attacks need.
  response.socket?.end(
    Buffer.from(`HTTP/1.1 ${status} Moved\r\nLocation: ${decodeURIComponent(location)}\r\nContent-Length: 0\r\n\r\n`),
  );
};

interface ReferenceSurroundings extends Surroundings {
  /** `127.0.0.1:port` of a server that may be asked for pictures. */
  readonly friend: string;
  /** Port of one that must never see a connection. */
  readonly forbiddenPort: number;
}

async function prepare(): Promise<ReferenceSurroundings> {
  const secret = createSecret("forbidden");
  const forbidden = await startWebServer((_, response) => response.end(secret), null);
  const friend = await startWebServer(answerByPath, null);
  const open = await openSurroundings({
    ALLOW_HTTP_IMAGES: "true",
    ALLOWED_PRIVATE_HOSTS: friend.host,
    IMAGE_FETCH_TIMEOUT_SECONDS: "0.2",
    MAX_IMAGE_BYTES: "1MiB",
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

/** References to pictures: forbidden addresses in every spelling, redirects to them, and servers that misbehave. */
export const references: AttackClass = {
  name: "references",
  title: "References to private addresses, files and servers that misbehave",
  routes: ["POST /v1/chat/completions"],
  prepare,
  attacks: (surroundings) => referenceAttacks(surroundings as ReferenceSurroundings),
};

function referenceAttacks({ friend, forbiddenPort }: ReferenceSurroundings): fc.Arbitrary<Attack> {
  const forbiddenUrl = fc
    .tuple(fc.constantFrom(...loopbackSpellings), fc.constantFrom(...urlShapes))
    .map(([spelling, shape]) => shape.replace("%", `${spelling}:${forbiddenPort}`));
  const fromFriend = fc.constantFrom(...Object.keys(habits)).map((name) => `http://${friend}/${name}`);
  const anywhere = fc.oneof(
    { weight: 6, arbitrary: forbiddenUrl },
    { weight: 3, arbitrary: fromFriend },
    { weight: 2, arbitrary: fc.constantFrom(...otherReferences) },
    { weight: 1, arbitrary: fc.constantFrom(...trickyTexts) },
  );
  const redirect = (to: fc.Arbitrary<string>): fc.Arbitrary<string> =>
    fc
      .tuple(fc.constantFrom(300, 301, 302, 303, 307, 308), to)
      .map(
        ([status, location]) => `http://${friend}/redirect/${status}/${encodeURIComponent(location.toWellFormed())}`,
      );
  const reference = fc.oneof(
    { weight: 4, arbitrary: anywhere },
    { weight: 3, arbitrary: redirect(anywhere) },
    { weight: 1, arbitrary: redirect(redirect(redirect(anywhere))) },
  );
  return fc.tuple(fc.constantFrom(...Object.keys(places)), reference).map(([place, url]) => createAttack(place, url));
}

/** Where a request can name a picture. */
const places: Readonly<Record<string, (url: string) => unknown>> = {
  image_url: (url) => [{ type: "image_url", image_url: { url } }],
  "image_url as text": (url) => [{ image_url: url }],
  input_image: (url) => [{ type: "input_image", image_url: url }],
  "an img tag": (url) => `<img src="${url}"> What is it?`,
  image_embeds: (url) => [{ type: "image_embeds", image_embeds: url }],
};

function createAttack(place: string, url: string): Attack {
  return {
    route: "POST /v1/chat/completions",
    label: `${shorten(url, 120)} in ${place}`,
    shown: `${shorten(JSON.stringify(url))} in ${place}`,
    run: async (wire) => [
      await wire.sendJson("/v1/chat/completions", {
        messages: [{ role: "user", content: places[place](url) }],
        max_tokens: 1,
      }),
    ],
  };
}
