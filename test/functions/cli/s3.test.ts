import { readFile, readdir } from "node:fs/promises";
import { CreateBucketCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { expect, test } from "vitest";

import { startS3Server } from "../../support/servers/s3-server.ts";
import { startReadyCli } from "../../support/service/ready-cli.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const checkpoint = new URL("../../../models/fovea-shapes/", import.meta.url);

test("a checkpoint and a picture on S3 are served, and the log shows the download", async () => {
  const s3 = await startS3Server();
  try {
    const bucket = "models";
    await s3.client.send(new CreateBucketCommand({ Bucket: bucket }));
    const names = (await readdir(checkpoint)).filter((name) => /\.(json|jinja|safetensors)$/.test(name));
    for (const name of names) {
      const body = await readFile(new URL(name, checkpoint));
      await s3.client.send(new PutObjectCommand({ Bucket: bucket, Key: `v1/tiny/${name}`, Body: body }));
    }
    const picture = await readFile(new URL("examples/scene.png", checkpoint));
    await s3.client.send(new PutObjectCommand({ Bucket: bucket, Key: "pictures/scene.png", Body: picture }));

    await using cacheFolder = await createTemporaryFolder();
    await using service = await startReadyCli({
      MODEL: `s3://${bucket}/v1/tiny`,
      CACHE_FOLDER: cacheFolder.path,
      AWS_ENDPOINT_URL_S3: s3.endpoint,
      AWS_ACCESS_KEY_ID: "test",
      AWS_SECRET_ACCESS_KEY: "test",
    });
    expect(service.cli.stdout()).toMatch(/"percent":100,"amount":"[\d.]+\/[\d.]+ MiB"/);

    const ask = async (url: string) => {
      const response = await fetch(`${service.baseUrl}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ messages: [{ role: "user", content: [{ image_url: url }] }], max_tokens: 4 }),
      });
      return { status: response.status, body: (await response.json()) as Record<string, unknown> };
    };
    const answer = await ask(`s3://${bucket}/pictures/scene.png`);
    expect(answer).toMatchObject({ status: 200, body: { model: "tiny" } });
    const missing = await ask(`s3://${bucket}/pictures/none.png`);
    expect(missing).toMatchObject({ status: 422, body: { error: { code: "image_unreachable" } } });
  } finally {
    await s3.stop();
  }
});
