import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { gzipSync } from "node:zlib";
import { CreateBucketCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";

import type { ConnectedImageSource } from "../../../engine/images/image-source.ts";
import { createS3ImageSource } from "../../../engine/images/s3-image-source.ts";
import { testImageSource } from "../../contracts/image-source.ts";
import { startS3Server, type S3Server } from "../../support/servers/s3-server.ts";

const never = new AbortController().signal;

testImageSource("object stores", async () => {
  const server = await startS3Server();
  await server.client.send(new CreateBucketCommand({ Bucket: "pictures" }));
  const source = createS3ImageSource({ createClient: () => server.createClient() });
  let numStored = 0;
  return {
    source,
    async store(bytes) {
      const key = `some folder/picture ${numStored++}.png`;
      await server.client.send(new PutObjectCommand({ Bucket: "pictures", Key: key, Body: bytes }));
      return `s3://pictures/${key}`;
    },
    missing: ["s3://pictures/none.png", "s3://no-such-bucket/none.png"],
    malformed: ["s3:", "s3://", "s3:///key", "s3:/pictures/none.png", "s3://Pictures!/none.png"],
    async close() {
      await source.close();
      await server.stop();
    },
  };
});

describe("a source over a real object store", () => {
  let server: S3Server;
  let source: ConnectedImageSource;

  beforeAll(async () => {
    server = await startS3Server();
    await server.client.send(new CreateBucketCommand({ Bucket: "pictures" }));
    source = createS3ImageSource({ createClient: () => server.createClient() });
  });
  afterAll(async () => {
    await source.close();
    await server.stop();
  });

  test.for([
    "plain.png",
    "a b.png",
    "a+b.png",
    "100%.png",
    "already%20escaped.png",
    "question?versionId=1#part.png",
    "folder//twice.png",
    "ünïcödé/日本 🙂.png",
    "quote'\"&<>;=@:,$!*().png",
    "trailing/",
  ])("uses the key %j literally", async (key) => {
    const bytes = Buffer.from(`the picture of ${key}`);
    await server.client.send(new PutObjectCommand({ Bucket: "pictures", Key: key, Body: bytes }));
    expect(await source.fetch(`s3://pictures/${key}`, { signal: never, maxImageBytes: 1_000 })).toEqual(bytes);
  });

  test("reads an object that is kept compressed", async () => {
    const bytes = Buffer.from("the picture");
    const object = { Bucket: "pictures", Key: "packed.png", Body: gzipSync(bytes), ContentEncoding: "gzip" };
    await server.client.send(new PutObjectCommand(object));
    const fetched = await source.fetch("s3://pictures/packed.png", { signal: never, maxImageBytes: 1_000 });
    expect(Buffer.from(fetched)).toEqual(bytes);
  });

  test.for([
    ["s3://pictures/none.png", "the bucket has no object with that key"],
    ["s3://no-such-bucket/none.png", "the bucket does not exist"],
  ])("%s is unreachable: %s", async ([reference, reason]) => {
    await expect(source.fetch(reference!, { signal: never, maxImageBytes: 1_000 })).rejects.toMatchObject({
      code: "image_unreachable",
      message: `The image "${reference}" is unreachable: ${reason}.`,
    });
  });

  test.for([
    ["s3://pictures", "s3://bucket/key"],
    ["s3://pictures/", "s3://bucket/key"],
    ["s3://", "s3://bucket/key"],
    ["s3:pictures/a.png", "s3://bucket/key"],
    ["s3://pi/a.png", "does not name a valid bucket"],
    ["s3://user@pictures/a.png", "does not name a valid bucket"],
    [`s3://pictures/${"é".repeat(513)}`, "a key of 1026 bytes; the limit is 1024"],
  ])("%s is malformed: %s", async ([reference, reason]) => {
    await expect(source.fetch(reference!, { signal: never, maxImageBytes: 1_000 })).rejects.toMatchObject({
      code: "invalid_image_reference",
      message: expect.stringContaining(reason!),
    });
  });
});

test("an object that the service may not read is unreachable, and so is a store with wrong keys", async () => {
  // Two calls create the bucket and its object; from the third on, the server enforces keys and policies.
  const server = await startS3Server({ numCallsBeforeAuth: 2 });
  const source = createS3ImageSource({ createClient: () => server.createClient() });
  try {
    await server.client.send(new CreateBucketCommand({ Bucket: "secret" }));
    await server.client.send(new PutObjectCommand({ Bucket: "secret", Key: "a.png", Body: "picture" }));
    const fetching = source.fetch("s3://secret/a.png", { signal: never, maxImageBytes: 1_000 });
    await expect(fetching).rejects.toMatchObject({
      code: "image_unreachable",
      message:
        'The image "s3://secret/a.png" is unreachable: the object store does not accept the service\'s credentials.',
    });
  } finally {
    await source.close();
    await server.stop();
  }
});

test("a service without a region reports it", async () => {
  for (const name of ["AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"]) vi.stubEnv(name, undefined);
  for (const name of ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"]) vi.stubEnv(name, "/dev/null");
  const source = createS3ImageSource({ createClient: () => new S3Client({ maxAttempts: 1 }) });
  try {
    const fetching = source.fetch("s3://pictures/a.png", { signal: never, maxImageBytes: 1_000 });
    await expect(fetching).rejects.toMatchObject({
      code: "image_unreachable",
      message: 'The image "s3://pictures/a.png" is unreachable: the service has no AWS region in which to look for it.',
    });
  } finally {
    vi.unstubAllEnvs();
    await source.close();
  }
});

describe("stores that misbehave", () => {
  /** A store whose answer the test writes; the client is real. */
  async function withStore(
    listener: Parameters<typeof createServer>[1],
    use: (source: ConnectedImageSource) => Promise<void>,
  ): Promise<void> {
    const server: Server = createServer(listener as never);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const credentials = { accessKeyId: "AKIAHUSH", secretAccessKey: "hush" };
    const createClient = (): S3Client =>
      new S3Client({ endpoint, forcePathStyle: true, region: "us-east-1", credentials, maxAttempts: 1 });
    const source = createS3ImageSource({ createClient });
    try {
      await use(source);
    } finally {
      await source.close();
      server.closeAllConnections();
      server.close();
    }
  }

  const fetchPicture = (source: ConnectedImageSource, signal = never): Promise<Uint8Array> =>
    source.fetch("s3://pictures/a.png", { signal, maxImageBytes: 100_000 });

  test.for([
    [403, "AccessDenied", "the service is not allowed to read it"],
    [400, "ExpiredToken", "the service's credentials have expired"],
    [403, "SignatureDoesNotMatch", "the object store does not accept the service's credentials"],
    [301, "PermanentRedirect", "the bucket is in another region"],
    [403, "InvalidObjectState", "the object is archived"],
    [500, "InternalError", "the object store is unreachable or failed"],
    [503, "SlowDown", "the object store is unreachable or failed"],
  ] as const)("%i %s is reported in our words, without the store's message", async ([status, code, reason]) => {
    await withStore(
      (_, response) => {
        response.writeHead(status, { "content-type": "application/xml" });
        response.end(`<Error><Code>${code}</Code><Message>hush: AKIAHUSH at host-7</Message></Error>`);
      },
      async (source) => {
        await expect(fetchPicture(source)).rejects.toMatchObject({
          code: "image_unreachable",
          message: `The image "s3://pictures/a.png" is unreachable: ${reason}.`,
        });
      },
    );
  });

  test("an object whose announced length exceeds the limit is not read", async () => {
    await withStore(
      (_, response) => void response.writeHead(200, { "content-length": 1_000_000 }).write("x"),
      async (source) => {
        await expect(fetchPicture(source)).rejects.toMatchObject({
          code: "image_too_large",
          message: "The image has 1000000 bytes; the limit is 100000.",
        });
      },
    );
  });

  test("an object that never ends is cut at the limit", async () => {
    await withStore(
      (_, response) => {
        const more = (): void => void response.write(Buffer.alloc(65_536), (error) => error ?? setImmediate(more));
        more();
      },
      async (source) => {
        await expect(fetchPicture(source)).rejects.toMatchObject({ code: "image_too_large" });
      },
    );
  });

  test.for([
    ["answers nothing", false],
    ["stops in the middle", true],
  ] as const)("the signal ends a store that %s", async ([, answers]) => {
    await withStore(
      (_, response) => {
        if (answers) response.writeHead(200, { "content-length": 100 }).write("x");
      },
      async (source) => {
        const controller = new AbortController();
        const reason = new Error("time is up");
        setTimeout(() => controller.abort(reason), 100);
        await expect(fetchPicture(source, controller.signal)).rejects.toBe(reason);
      },
    );
  });

  test.for([
    [2, "is read again"],
    [3, "three times is unreachable"],
  ] as const)("an object that breaks off (%i times) %s", async ([numBreaks]) => {
    let numCalls = 0;
    await withStore(
      (_, response) => {
        response.writeHead(200, { "content-length": 7 });
        if (++numCalls > numBreaks) response.end("picture");
        else response.write("pic", () => response.destroy());
      },
      async (source) => {
        const outcome = await fetchPicture(source).then(
          (bytes) => Buffer.from(bytes).toString(),
          ({ code }: { code: string }) => code,
        );
        expect([outcome, numCalls]).toEqual([numBreaks === 2 ? "picture" : "image_unreachable", 3]);
      },
    );
  });

  test("a store that hangs up is unreachable", async () => {
    await withStore(
      (_, response) => void response.destroy(),
      async (source) => {
        await expect(fetchPicture(source)).rejects.toMatchObject({ code: "image_unreachable" });
      },
    );
  });
});

test("a service without credentials reports it", async () => {
  const credentials = (): Promise<never> =>
    Promise.reject(Object.assign(new Error("looked everywhere"), { name: "CredentialsProviderError" }));
  const source = createS3ImageSource({ createClient: () => new S3Client({ region: "us-east-1", credentials }) });
  await expect(source.fetch("s3://pictures/a.png", { signal: never, maxImageBytes: 1 })).rejects.toMatchObject({
    code: "image_unreachable",
    message: expect.stringContaining("has no credentials"),
  });
  await source.close();
});

test("a client whose creation failed is created again for the next image", async () => {
  let numCalls = 0;
  const source = createS3ImageSource({
    createClient: () => {
      numCalls++;
      throw new Error("no profile");
    },
  });
  for (let attempt = 1; attempt <= 2; attempt++) {
    const fetching = source.fetch("s3://pictures/a.png", { signal: never, maxImageBytes: 1 });
    await expect(fetching).rejects.toThrow("no profile");
    expect(numCalls).toBe(attempt);
  }
});
