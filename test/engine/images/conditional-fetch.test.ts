/** The contract of sources with validators, over a real object store and a real web server. */
import { CreateBucketCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { conditionalHeaders, validatorOf } from "../../../engine/images/http-validator.ts";
import { createHttpsImageSource } from "../../../engine/images/https-image-source.ts";
import type { ConnectedImageSource, FetchedImage } from "../../../engine/images/image-source.ts";
import { createS3ImageSource } from "../../../engine/images/s3-image-source.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import { makeCertificate } from "./certificate.ts";
import { startWebServer } from "./web-server.ts";

interface Place {
  readonly source: ConnectedImageSource;
  /** Stores bytes under the reference, replacing others. */
  put(bytes: Uint8Array): Promise<string>;
  close(): Promise<void>;
}

const never = new AbortController().signal;
const certificate = makeCertificate();

async function objectStore(): Promise<Place> {
  const server = await startS3Server();
  await server.client.send(new CreateBucketCommand({ Bucket: "pictures" }));
  const source = createS3ImageSource({ createClient: () => server.createClient() });
  return {
    source,
    async put(bytes) {
      await server.client.send(new PutObjectCommand({ Bucket: "pictures", Key: "a.png", Body: bytes }));
      return "s3://pictures/a.png";
    },
    async close() {
      await source.close();
      await server.stop();
    },
  };
}

async function webServer(header: "etag" | "last-modified", isRedirected = false): Promise<Place> {
  let picture: Uint8Array = new Uint8Array();
  let version = 0;
  const server = await startWebServer((request, response) => {
    if (request.url === "/elsewhere") return void response.writeHead(302, { location: "/a.png" }).end();
    const changed = new Date(Date.UTC(2024, 0, 1) + version * 1_000).toUTCString();
    const validator = header === "etag" ? `"version ${version}"`.replace(" ", "-") : changed;
    const condition = request.headers[header === "etag" ? "if-none-match" : "if-modified-since"];
    if (condition === validator) return void response.writeHead(304).end();
    response.writeHead(200, { [header]: validator }).end(picture);
  }, certificate);
  const source = createHttpsImageSource({
    allowedPrivateHosts: [server.host],
    certificateAuthorities: certificate.cert,
  });
  return {
    source,
    async put(bytes) {
      picture = bytes;
      version += 1;
      return `https://${server.host}/${isRedirected ? "elsewhere" : "a.png"}`;
    },
    async close() {
      await source.close();
      await server.stop();
    },
  };
}

const places = [
  ["an object's ETag", objectStore],
  ["an ETag of the web", () => webServer("etag")],
  ["an ETag behind a redirect", () => webServer("etag", true)],
  ["the date of the last change", () => webServer("last-modified")],
] as const;

describe.for(places)("an image known by %s", ([, createPlace]) => {
  let place: Place;
  const ask = (reference: string, validator: string | null, maxImageBytes = 1_000): Promise<FetchedImage> =>
    place.source.fetchIfChanged!(reference, { signal: never, maxImageBytes, validator });

  beforeAll(async () => {
    place = await createPlace();
  });
  afterAll(async () => {
    await place.close();
  });

  test("is not downloaded while unchanged, and is downloaded when it changes", async () => {
    const reference = await place.put(Buffer.from("the first picture"));
    const first = await ask(reference, null);
    expect(first).toMatchObject({ kind: "fetched", bytes: Buffer.from("the first picture") });
    const { validator } = first as FetchedImage & { kind: "fetched" };
    expect(validator).toEqual(expect.any(String));
    expect(await ask(reference, validator)).toEqual({ kind: "unchanged" });
    // An unchanged image is unchanged, whatever its size.
    expect(await ask(reference, validator, 1)).toEqual({ kind: "unchanged" });

    await place.put(Buffer.from("another picture!!"));
    const second = await ask(reference, validator);
    expect(second).toMatchObject({ kind: "fetched", bytes: Buffer.from("another picture!!") });
    expect((second as typeof first & { kind: "fetched" }).validator).not.toBe(validator);
    expect(await place.source.fetch(reference, { signal: never, maxImageBytes: 1_000 })).toEqual(
      Buffer.from("another picture!!"),
    );
  });

  test("keeps its limit and its errors", async () => {
    const reference = await place.put(new Uint8Array(500));
    await expect(ask(reference, null, 499)).rejects.toMatchObject({ code: "image_too_large" });
    await expect(
      place.source.fetchIfChanged!(reference, { signal: AbortSignal.abort("gone"), maxImageBytes: 1, validator: null }),
    ).rejects.toBe("gone");
  });
});

describe("validators from the web", () => {
  const url = new URL("https://images.example/a.png?size=1");
  const date = "Tue, 02 Jan 2024 00:01:00 GMT";

  test.for([
    [{ etag: '"abc"' }, { "if-none-match": '"abc"' }],
    [{ etag: '""' }, { "if-none-match": '""' }],
    [{ etag: '"abc"', "last-modified": date, date }, { "if-none-match": '"abc"' }],
    // A weak ETag identifies what an image shows, not its bytes.
    [{ etag: 'W/"abc"' }, null],
    [{ etag: "abc" }, null],
    [{ etag: '"a"b"' }, null],
    [
      { "last-modified": "Tue, 02 Jan 2024 00:00:00 GMT", date },
      { "if-modified-since": "Tue, 02 Jan 2024 00:00:00 GMT" },
    ],
    [{ "last-modified": "Tue, 02 Jan 2024 00:00:01 GMT", date }, null],
    [{ "last-modified": "yesterday", date }, null],
    [{ "last-modified": "Tue, 02 Jan 2024 00:00:00 GMT" }, null],
    [{}, null],
  ] as const)("%j makes the next request send %j", ([headers, condition]) => {
    expect(conditionalHeaders(validatorOf(headers, url), url)).toEqual(condition);
  });

  test("are sent only to the address that gave them", () => {
    const validator = validatorOf({ etag: '"abc"' }, url);
    expect(conditionalHeaders(validator, new URL("https://other.example/a.png?size=1"))).toBeNull();
    expect(conditionalHeaders(validator, new URL("https://images.example/a.png?size=2"))).toBeNull();
  });
});
