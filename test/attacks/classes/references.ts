import * as fc from "fast-check";

import { shorten } from "../attack.ts";
import type { Attack, AttackClass } from "../attack.ts";
import { trickyTexts } from "../generators/hostile-json.ts";
import { habits, prepareWeb } from "../web-surroundings.ts";
import type { WebSurroundings } from "../web-surroundings.ts";

/** Addresses of this machine in spellings that parsers read differently. None leads to another machine. */
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

/** Shapes of URLs around an address. `%` stands for the address and its port. */
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

/** References to pictures: forbidden addresses in every spelling, redirects to them, and misbehaving servers. */
export const references: AttackClass = {
  name: "references",
  title: "References to private addresses, files and servers that misbehave",
  numCases: 200,
  routes: ["POST /v1/chat/completions"],
  prepare: prepareWeb,
  attacks: (surroundings) => referenceAttacks(surroundings as WebSurroundings),
};

function referenceAttacks({ friend, forbiddenPort }: WebSurroundings): fc.Arbitrary<Attack> {
  const forbiddenUrl = fc
    .tuple(fc.constantFrom(...loopbackSpellings), fc.constantFrom(...urlShapes))
    .map(([spelling, shape]) => shape.replace("%", `${spelling}:${forbiddenPort}`));
  const fromFriend = fc.constantFrom(...habits).map((name) => `http://${friend}/${name}`);
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

/** Places in which a request can reference a picture or a document. */
const places: Readonly<Record<string, (url: string) => unknown>> = {
  image_url: (url) => [{ type: "image_url", image_url: { url } }],
  "image_url as text": (url) => [{ image_url: url }],
  input_image: (url) => [{ type: "input_image", image_url: url }],
  "an img tag": (url) => `<img src="${url}"> What is it?`,
  image_embeds: (url) => [{ type: "image_embeds", image_embeds: url }],
  document_url: (url) => [{ type: "document_url", document_url: url }],
  file_data: (url) => [{ type: "file", file: { file_data: url } }],
};

function createAttack(place: string, url: string): Attack {
  return {
    route: "POST /v1/chat/completions",
    label: `${shorten(url, 120)} in ${place}`,
    shown: `${shorten(JSON.stringify(url))} in ${place}`,
    run: async (wire) => [
      await wire.sendJson("/v1/chat/completions", {
        messages: [{ role: "user", content: places[place]!(url) }],
        max_tokens: 1,
      }),
    ],
  };
}
