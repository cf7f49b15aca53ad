/** Reads the recordings of test/fixtures/hub/record.py: checkpoints as they are on the hub. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { copyFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import type { ChatMessage, VideoSampling } from "../../../engine/index.ts";
import type { ProcessorOptions } from "../../../engine/multimodal/multimodal-processor.ts";
import { pictureReference } from "./goldens.ts";
import type { GoldenMessage } from "./goldens.ts";

const hubFolder = fileURLToPath(new URL("../../fixtures/hub/", import.meta.url));

/** The major version of transformers that wrote a checkpoint's files. */
export const generations = ["v4", "v5"] as const;
export type Generation = (typeof generations)[number];

export interface HubMessage extends Pick<GoldenMessage, "role"> {
  readonly content: readonly (GoldenMessage["content"][number] | { readonly type: "video" })[];
}

export interface HubCase {
  readonly name: string;
  readonly messages: readonly HubMessage[];
  /** Files of the `pictures` folder, one per image part. */
  readonly pictures: readonly string[];
  /** Files of the `videos` folder, one per video part. Default: none. */
  readonly videos?: readonly string[];
  /** Frames of the videos. */
  readonly sampling?: VideoSampling;
  /** Of the image processor. Default: the checkpoint's. */
  readonly options?: ProcessorOptions;
  readonly promptTokenIds: readonly number[];
  readonly greedyTokenIds: readonly number[];
  /** Of the greedy tokens. */
  readonly logprobs: readonly number[];
  /** Text of the greedy tokens without special tokens. */
  readonly answer: string;
  /** The adapter that the request chooses. Default: none. */
  readonly adapter?: string;
}

/** Recordings of conversations whose requests have options of the image processor. */
export function optionCases(name: string): readonly HubCase[] {
  return JSON.parse(readFileSync(join(hubFolder, name, "paths.json"), "utf8")) as HubCase[];
}

export const hubCheckpoints: readonly string[] = readdirSync(hubFolder)
  .filter((name) => existsSync(join(hubFolder, name, "entry.py")))
  .sort();

/** Copies a checkpoint's files of one generation into an empty folder. */
export async function writeHubCheckpoint(name: string, generation: Generation, folder: string): Promise<void> {
  const files = readdirSync(join(hubFolder, name, generation)).map((file) => join(generation, file));
  for (const file of ["model.safetensors", "tokenizer.json", ...files]) {
    await copyFile(join(hubFolder, name, file), join(folder, file.slice(file.lastIndexOf("/") + 1)));
  }
}

export function hubCases(name: string): readonly HubCase[] {
  return JSON.parse(readFileSync(join(hubFolder, name, "goldens.json"), "utf8")) as HubCase[];
}

/** Checkpoints with recordings of test/fixtures/hub/record_videos.py. */
export const videoCheckpoints: readonly string[] = hubCheckpoints.filter((name) =>
  existsSync(join(hubFolder, name, "videos.json")),
);

export function videoCases(name: string): readonly HubCase[] {
  return JSON.parse(readFileSync(join(hubFolder, name, "videos.json"), "utf8")) as HubCase[];
}

const adapterFolder = fileURLToPath(new URL("../../fixtures/adapters/", import.meta.url));

/** Recordings of test/fixtures/adapters/record.py: LoRA adapters, called like the checkpoints that they change. */
export const adaptedCheckpoints: readonly string[] = readdirSync(adapterFolder).filter((name) =>
  existsSync(join(adapterFolder, name, "goldens.json")),
);

/** The folder of an adapter in PEFT's form. */
export function loraAdapter(name: string): string {
  return join(adapterFolder, name);
}

export function adaptedCases(name: string): readonly HubCase[] {
  return JSON.parse(readFileSync(join(adapterFolder, name, "goldens.json"), "utf8")) as HubCase[];
}

/** The model of the adapters that requests choose, and their names. */
export const chosenAdapters = { model: "qwen3-vl", names: ["all", "some"] } as const;

export function chosenAdapter(name: string): string {
  return loraAdapter(join("chosen", name));
}

export function chosenCases(name: string): readonly HubCase[] {
  const withName = (golden: HubCase): HubCase => ({
    ...golden,
    adapter: name,
    name: `${golden.name} with ${name}`,
  });
  return adaptedCases(join("chosen", name)).map(withName);
}

/** The picture as a `data:` reference. */
export async function hubPictureReference(name: string): Promise<string> {
  const own = join(hubFolder, "pictures", name);
  if (!existsSync(own)) return pictureReference(name);
  return `data:image/png;base64,${(await readFile(own)).toString("base64")}`;
}

/** The conversation with its pictures and videos as `data:` references. */
export async function hubMessages({ messages, pictures, videos = [] }: HubCase): Promise<ChatMessage[]> {
  const references = {
    image: await Promise.all(pictures.map(hubPictureReference)),
    video: await Promise.all(videos.map(hubVideoReference)),
  };
  return messages.map(({ role, content }) => ({
    role,
    content: content.map((part) =>
      part.type === "text" ? part : { type: part.type, reference: references[part.type].shift()! },
    ),
  }));
}

async function hubVideoReference(name: string): Promise<string> {
  return `data:video/mp4;base64,${(await readFile(join(hubFolder, "videos", name))).toString("base64")}`;
}
