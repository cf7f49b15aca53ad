import * as fc from "fast-check";

import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { trickyNames, trickyTexts } from "../generators/hostile-json.ts";
import { fillPath, nameOf, routes } from "../generators/routes.ts";
import type { Route } from "../generators/routes.ts";
import { prepareForHttp } from "../surroundings.ts";

/** Methods of RFC 9110, of WebDAV and caches, and invalid ones. */
const methods = [
  "GET",
  "HEAD",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
  "OPTIONS",
  "TRACE",
  "PROPFIND",
  "PURGE",
  "QUERY",
  "M-SEARCH",
  "LINK",
] as const;

const encodedTexts = [...trickyTexts, ...trickyNames].map((text) =>
  [...Buffer.from(text)].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join(""),
);

const parameter = fc.oneof(
  fc.constantFrom(
    `file-${"0".repeat(44)}`,
    `batch_${"f".repeat(44)}`,
    `file-${"0".repeat(43)}g`,
    "fovea-shapes",
    "scene.png",
    "main.js",
    "index.html",
    "..",
    "%2e%2e",
    "..%2f..%2f..%2fpackage.json",
    "..%5c..%5cpackage.json",
    "%252e%252e%252f",
    "%c0%ae%c0%ae%c0%af",
    "%",
    "%zz",
    "%u002e",
    "%00",
    "main.js%00.png",
    "main.js/",
    "a".repeat(300),
    "a".repeat(7000),
    "%61".repeat(2000),
    "a/b/c",
    "a;b=c",
    "a:b",
    "~",
    "$&",
    "con",
  ),
  fc.constantFrom(...encodedTexts),
  fc.webSegment(),
);

const query = fc.oneof(
  { weight: 3, arbitrary: fc.constant("") },
  {
    weight: 3,
    arbitrary: fc
      .array(
        fc.tuple(
          fc.constantFrom("limit", "after", "order", "purpose", "limit[]", "__proto__", "constructor", "a"),
          fc.oneof(
            fc.constantFrom("1", "0", "-1", "1e9", "1.5", "", "0x10", "NaN", "asc", "batch", "%00", "%", "%ff"),
            parameter,
          ),
        ),
        { minLength: 1, maxLength: 4 },
      )
      .map((pairs) => `?${pairs.map(([name, value]) => `${name}=${value}`).join("&")}`),
  },
  { weight: 1, arbitrary: fc.constantFrom("?", "??", "?&&&", `?${"a&".repeat(3000)}`, "?=", "#a", "?a#b") },
);

/** Changes of a whole path. */
const shape = fc.oneof(
  { weight: 5, arbitrary: fc.constant((path: string) => path) },
  {
    weight: 2,
    arbitrary: fc.constantFrom<(path: string) => string>(
      (path) => `${path}/`,
      (path) => `/${path}`,
      (path) => path.replace("/v1", "/v1/."),
      (path) => path.replace("/v1", "/v1/../v1"),
      (path) => path.replace("/v1", "/%76%31"),
      (path) => path.replaceAll("/", "\\"),
      (path) => path.toUpperCase(),
      (path) => `/\\..\\..${path}`,
      (path) => `http://127.0.0.1:1${path}`,
      (path) => `http://[::1${path}`,
      (path) => `http://a@b:c${path}`,
      (path) => `//127.0.0.1:1${path}`,
      (path) => path.slice(1),
      () => "*",
      () => "",
      () => "?",
      (path) => `${path}\u0000`,
      (path) => `${path}é`,
      (path) => `/${"../".repeat(20)}etc${path}`,
      () => `/${"a/".repeat(3000)}`,
    ),
  },
);

const headerLines = [
  "Accept: text/html",
  "Accept: */*;q=0.1, text/html;q=2",
  `Accept: ${"text/html,".repeat(500)}`,
  "Accept-Encoding: gzip, br",
  "X-Request-Id: a",
  `X-Request-Id: ${"a".repeat(200)}`,
  "X-Request-Id: <script>",
  "X-Request-Id: \u00ff\u0001",
  "Authorization: Bearer",
  "Authorization: Basic YTpi",
  `Authorization: Bearer ${"a".repeat(5000)}`,
  "If-None-Match: *",
  'If-None-Match: "a", W/"b"',
  "If-Modified-Since: yesterday",
  "Range: bytes=0-0,-1,5-2",
  "Origin: null",
  "Origin: https://other.example",
  "Access-Control-Request-Method: POST",
  "X-HTTP-Method-Override: DELETE",
  "X-Forwarded-Host: other.example",
  "X-Forwarded-For: 127.0.0.1",
  "X-Original-URL: /metrics",
  "Forwarded: for=127.0.0.1;host=other.example",
  "Cookie: a=b; __proto__=c",
  "Content-Type: application/json",
  "Te: trailers",
  "Max-Forwards: 0",
  "__proto__: a",
  "constructor: a",
] as const;

/** Every route under every method, with odd paths, parameters, queries and headers, written by hand. */
export const paths: AttackClass = {
  name: "paths",
  title: "Odd methods, paths, queries and headers on all routes",
  numCases: 800,
  routes: routes.map(nameOf),
  prepare: prepareForHttp,
  attacks: () =>
    fc
      .record({
        route: fc.constantFrom(...routes),
        method: fc.oneof(
          { weight: 2, arbitrary: fc.constant(null) },
          { weight: 1, arbitrary: fc.constantFrom(...methods) },
        ),
        parameter,
        query,
        shape,
        headers: fc.uniqueArray(fc.constantFrom(...headerLines), { maxLength: 3 }),
      })
      .map(createAttack),
};

interface Parts {
  readonly route: Route;
  /** Null for the route's own method. */
  readonly method: string | null;
  readonly parameter: string;
  readonly query: string;
  readonly shape: (path: string) => string;
  readonly headers: readonly string[];
}

function createAttack(parts: Parts): Attack {
  const { route, parameter: value, query: search, shape: reshape, headers } = parts;
  const method = parts.method ?? route.method;
  const target = reshape(fillPath(route.path, value)) + search;
  const head = [
    `${method} ${target} HTTP/1.1`,
    "Host: 127.0.0.1",
    "Connection: close",
    ...headers,
    "Content-Length: 0",
  ];
  const text = `${head.join("\r\n")}\r\n\r\n`;
  return {
    route: nameOf(route),
    label: `${method} ${target.slice(0, 80)}`,
    shown: shorten(text),
    run: (wire) =>
      wire.play({
        requests: [{ method, target }],
        steps: [{ kind: "write", bytes: Buffer.from(text) }],
        // Servers may silently close the connection for an invalid request line; ours gives a reason.
        numDue: 1,
      }),
  };
}
