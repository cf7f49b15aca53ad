/** A web server and an S3 server that have one file, as sources of a service. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { CreateBucketCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { vi } from "vitest";

import { startS3Server } from "./s3-server.ts";

export interface MediaServers {
  /** `host:port` of the web server. A path that begins with `/gone` gets 404, and other files never begin to arrive. */
  readonly host: string;
  /** Of a service that may fetch from both. */
  readonly environment: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

/** Sets credentials in the environment of this process, until it is stopped. */
export async function startMediaServers(
  file: Uint8Array,
  { path, bucket, key }: { readonly path: string; readonly bucket: string; readonly key: string },
): Promise<MediaServers> {
  const web = createServer((request, response) => {
    if (request.url === path) response.end(file);
    else if (request.url?.startsWith("/gone") === true) response.writeHead(404).end();
  });
  web.listen(0, "127.0.0.1");
  await once(web, "listening");
  const host = `127.0.0.1:${(web.address() as AddressInfo).port}`;
  const s3 = await startS3Server();
  await s3.client.send(new CreateBucketCommand({ Bucket: bucket }));
  await s3.client.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: file }));
  vi.stubEnv("AWS_ACCESS_KEY_ID", "test");
  vi.stubEnv("AWS_SECRET_ACCESS_KEY", "test");
  return {
    host,
    environment: { AWS_ENDPOINT_URL_S3: s3.endpoint, ALLOW_HTTP_IMAGES: "true", ALLOWED_PRIVATE_HOSTS: host },
    async stop() {
      await s3.stop();
      web.closeAllConnections();
      web.close();
      vi.unstubAllEnvs();
    },
  };
}
