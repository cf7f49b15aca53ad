/** A video that is known costs a conditional request, or none: over a real object store. */
import { CreateBucketCommand, PutObjectCommand } from "@aws-sdk/client-s3";
import { afterAll, beforeAll, expect, test } from "vitest";

import { defaultCacheConfig, defaultVideoLimits } from "../../../engine/contract/default-limits.ts";
import type { PromptRequest, VideoPart } from "../../../engine/contract/generation-request.ts";
import { createDataUrlImageSource } from "../../../engine/images/data-url-image-source.ts";
import { createS3ImageSource } from "../../../engine/images/s3-image-source.ts";
import type { ProcessedPrompt } from "../../../engine/input/input-processor.ts";
import { MultiModalCaches } from "../../../engine/multimodal/caches/multimodal-caches.ts";
import { startS3Server } from "../../support/servers/s3-server.ts";
import type { S3Server } from "../../support/servers/s3-server.ts";
import { never, readVideo } from "../videos/videos.ts";
import { createGoldenInputs, imageLimits } from "./golden-inputs.ts";
import { recordStatuses } from "./s3-statuses.ts";

let s3: S3Server;

beforeAll(async () => {
  s3 = await startS3Server();
  await s3.client.send(new CreateBucketCommand({ Bucket: "clips" }));
});
afterAll(() => s3.stop());

const put = (name: string): Promise<unknown> =>
  s3.client.send(new PutObjectCommand({ Bucket: "clips", Key: "a.mp4", Body: readVideo(name) }));

type SentVideo = Omit<VideoPart, "type">;

interface Server extends AsyncDisposable {
  /** Of the store's answers, since the last call. */
  statuses(): number[];
  /** The prompt of videos. */
  show(video: SentVideo, fields?: Partial<PromptRequest>, ...more: readonly SentVideo[]): Promise<ProcessedPrompt>;
}

function toPart(sent: SentVideo): VideoPart {
  return { type: "video", ...sent };
}

async function startServer(): Promise<Server> {
  const caches = new MultiModalCaches(defaultCacheConfig, null);
  const client = s3.createClient();
  const statuses = recordStatuses(client);
  const stored = createS3ImageSource({ createClient: () => client });
  const limits = { ...imageLimits, maxImagesPerPrompt: 8 };
  const inputs = await createGoldenInputs("llava-default", {
    caches,
    sources: [stored, createDataUrlImageSource()],
    imageLimits: limits,
    settings: { imageLimits: limits, videoLimits: { ...defaultVideoLimits, maxVideosPerPrompt: 2 } },
  });
  return {
    statuses: () => statuses.splice(0),
    show(video, fields = {}, ...more) {
      const videos = [video, ...more].map(toPart);
      const content = [...videos, { type: "text", text: "what happens?" } as const];
      const prompt = { kind: "chat", messages: [{ role: "user", content }], addGenerationPrompt: true } as const;
      return inputs.inputProcessor.process({ videoSampling: { numFrames: 2 }, ...fields, prompt }, never);
    },
    async [Symbol.asyncDispose]() {
      await inputs[Symbol.asyncDispose]();
      await stored.close();
      await caches.close();
    },
  };
}

const hashesOf = ({ images }: ProcessedPrompt): string[] => images.map(({ mmHash }) => mmHash);
const linked = { reference: "s3://clips/a.mp4" };
const fourFrames = { videoSampling: { numFrames: 4 } };
const dataUrl = (name: string): string => `data:video/mp4;base64,${readVideo(name).toString("base64")}`;

test("a video that has not changed is downloaded again only for frames that no cache has", async () => {
  await using server = await startServer();
  await put("h264-b-frames.mp4");
  const shown = await server.show(linked);
  expect(server.statuses()).toEqual([200]);
  expect(await server.show(linked)).toEqual(shown);
  expect(server.statuses()).toEqual([304]);

  const more = await server.show(linked, fourFrames);
  expect(server.statuses()).toEqual([304, 200]);
  expect(more.images).toHaveLength(4);
  await using other = await startServer();
  expect(await other.show(linked, fourFrames)).toEqual(more);
  expect(await server.show(linked, fourFrames)).toEqual(more);
  server.statuses();

  expect(await server.show(linked, { tenant: "other" })).toEqual(shown);
  expect(server.statuses()).toEqual([200]);
});

test("a video that has changed is another one", async () => {
  await using server = await startServer();
  await put("h264-b-frames.mp4");
  const before = await server.show(linked);
  await put("bt709.mp4");
  const after = await server.show(linked);
  expect(server.statuses()).toEqual([200, 200]);
  expect(hashesOf(after)).not.toEqual(hashesOf(before));
  expect(await server.show(linked)).toEqual(after);
  expect(server.statuses()).toEqual([304]);
});

test("a video with a uuid is fetched once, and then shown by its uuid alone", async () => {
  await using server = await startServer();
  await put("h264-b-frames.mp4");
  const shown = await server.show({ ...linked, uuid: "clip" });
  expect(server.statuses()).toEqual([200]);
  expect(await server.show({ reference: null, uuid: "clip" })).toEqual(shown);
  expect(await server.show({ ...linked, uuid: "clip" })).toEqual(shown);
  expect(server.statuses()).toEqual([]);
  expect(hashesOf(await server.show({ reference: dataUrl("h264-b-frames.mp4") }))).toEqual(hashesOf(shown));

  const missing = { code: "invalid_argument", parameter: "prompt.videos[0]" };
  const uncached = "The video was sent as a uuid only, and is not cached. Send the video with its uuid.";
  for (const fields of [fourFrames, { tenant: "other" }, { cacheSalt: "salt" }]) {
    const alone = server.show({ reference: null, uuid: "clip" }, fields);
    await expect(alone).rejects.toMatchObject({ ...missing, message: uncached });
  }
  expect((await server.show({ ...linked, uuid: "clip" }, fourFrames)).images).toHaveLength(4);
  expect((await server.show({ reference: null, uuid: "clip" }, fourFrames)).images).toHaveLength(4);
});

test("of several videos with one uuid, any may bring the video", async () => {
  await using server = await startServer();
  await put("h264-b-frames.mp4");
  const alone = { reference: null, uuid: "clip" };
  const both = await server.show(alone, {}, { ...linked, uuid: "clip" });
  const [first, second, ...same] = hashesOf(both);
  expect(same).toEqual([first, second]);
  await expect(server.show(alone, {}, { reference: null, uuid: "new" })).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "prompt.videos[1]",
  });
});

test("another video under a known uuid is rejected where its frames would be mixed up", async () => {
  await using server = await startServer();
  const shown = await server.show({ reference: dataUrl("h264-b-frames.mp4"), uuid: "clip" });
  const changed = { reference: dataUrl("bt709.mp4"), uuid: "clip" };
  expect(await server.show(changed)).toEqual(shown);
  await expect(server.show(changed, fourFrames)).rejects.toMatchObject({
    code: "invalid_video",
    message: "Another video was sent under this uuid before. Give a changed video a new uuid.",
    parameter: "prompt.videos[0]",
  });
});
