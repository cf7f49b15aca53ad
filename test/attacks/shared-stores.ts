/** A service with API keys, batches on S3, and queue and caches in Redis; both are real servers. */
import { CreateBucketCommand } from "@aws-sdk/client-s3";

import { startRedisServer } from "../support/servers/redis-server.ts";
import { startS3Server } from "../support/servers/s3-server.ts";
import type { Surroundings } from "./attack.ts";
import { sceneUrl } from "./generators/bodies.ts";
import { createSecret, openSurroundings } from "./surroundings.ts";
import type { Wire } from "./wire.ts";

export interface SharedStores extends Surroundings {
  /** The attacker's key; sent by default. */
  readonly ownKey: string;
  /** The key of another tenant. */
  readonly otherKey: string;
  /** Ids of another tenant's file and batch, which exist once the service is ready. */
  readonly ids: readonly string[];
  /** Another tenant's name of a picture. */
  readonly uuid: string;
}

export async function prepareSharedStores(): Promise<SharedStores> {
  const ownKey = createSecret("key");
  const otherKey = createSecret("key");
  const text = createSecret("text-of-another-tenant");
  const uuid = createSecret("picture-of-another-tenant");
  const ids: string[] = [];
  const password = createSecret("password");
  const [redis, s3] = await Promise.all([startRedisServer({ settings: ["--requirepass", password] }), startS3Server()]);
  await s3.client.send(new CreateBucketCommand({ Bucket: "attacks" }));
  const open = await openSurroundings({
    API_KEY: `${ownKey},${otherKey}`,
    REDIS_URL: redis.url.replace("redis://", `redis://default:${password}@`),
    BATCH_STORE: "s3://attacks/batches",
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    MAX_BODY_BYTES: "256KiB",
    BATCH_MAX_LINES: "10",
  });
  return {
    ...open,
    ownKey,
    otherKey,
    headers: { authorization: `Bearer ${ownKey}` },
    ids,
    uuid,
    secrets: [...open.secrets, ownKey, otherKey, password, redis.url, s3.endpoint, text],
    async plant(wire) {
      await using other = wire.as({ authorization: `Bearer ${otherKey}` });
      ids.splice(0, ids.length, ...(await leaveFiles(other, text)));
      await leavePicture(other, uuid);
    },
    async [Symbol.asyncDispose]() {
      await Promise.all([redis.kill(), s3.stop(), open[Symbol.asyncDispose]()]);
    },
  };
}

/** Creates a file and a batch; returns their ids. */
async function leaveFiles(other: Wire, text: string): Promise<string[]> {
  const line = {
    custom_id: text,
    method: "POST",
    url: "/v1/completions",
    body: { prompt: text, max_tokens: 1, echo: true },
  };
  const uploaded = await other.send({
    method: "POST",
    target: "/v1/files",
    headers: { "content-type": "multipart/form-data; boundary=b" },
    body: `--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b\r\nContent-Disposition: form-data; name="file"; filename="${text}"\r\n\r\n${JSON.stringify(line)}\r\n--b--\r\n`,
  });
  const { id } = JSON.parse(uploaded.text) as { readonly id: string };
  const created = await other.sendJson("/v1/batches", {
    input_file_id: id,
    endpoint: "/v1/completions",
    completion_window: "24h",
    metadata: { text },
  });
  return [id, (JSON.parse(created.text) as { readonly id: string }).id];
}

async function leavePicture(other: Wire, uuid: string): Promise<void> {
  const content = [{ type: "image_url", image_url: { url: sceneUrl }, uuid }];
  const asked = await other.sendJson("/v1/chat/completions", { messages: [{ role: "user", content }], max_tokens: 1 });
  if (asked.status !== 200) throw new Error(`A picture cannot be left: ${asked.text}`);
}
