import { readFile, readdir } from "node:fs/promises";
import { CreateBucketCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { expect, test } from "vitest";

import { adaptedCases, loraAdapter, writeHubCheckpoint } from "../../support/checkpoints/hub-checkpoints.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import { startReadyCli } from "../../support/service/ready-cli.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";

const checkpoint = new URL("../../../models/fovea-shapes/", import.meta.url);

const credentials = { AWS_ACCESS_KEY_ID: "test", AWS_SECRET_ACCESS_KEY: "test" };

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
      ...credentials,
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

test("an adapter on S3 changes the answers of a model in a folder", async () => {
  const s3 = await startS3Server();
  try {
    await s3.client.send(new CreateBucketCommand({ Bucket: "models" }));
    for (const name of ["adapter_config.json", "adapter_model.safetensors"]) {
      const Body = await readFile(`${loraAdapter("qwen2.5")}/${name}`);
      await s3.client.send(new PutObjectCommand({ Bucket: "models", Key: `adapters/v1/${name}`, Body }));
    }
    await using folder = await createTemporaryFolder();
    await using cacheFolder = await createTemporaryFolder();
    await writeHubCheckpoint("qwen2.5", "v5", folder.path);
    await using service = await startReadyCli({
      MODEL: folder.path,
      LORA_ADAPTER: "s3://models/adapters/v1",
      DTYPE: "float32",
      CACHE_FOLDER: cacheFolder.path,
      AWS_ENDPOINT_URL_S3: s3.endpoint,
      ...credentials,
    });
    const [golden] = adaptedCases("qwen2.5");
    const response = await fetch(`${service.baseUrl}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: golden!.promptTokenIds, temperature: 0, max_tokens: 32, ignore_eos: true }),
    });
    expect(await response.json()).toMatchObject({ choices: [{ text: golden!.answer }] });
  } finally {
    await s3.stop();
  }
});
