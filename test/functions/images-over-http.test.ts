/** Pictures by name, as embeddings and with options of their processor, over HTTP with whole models. */
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

import { writePng } from "../engine/images/computed-picture.ts";
import { numpyFile } from "../engine/multimodal/embedding-files.ts";
import { goldensFolder, loadGoldens, pictureReference } from "../support/checkpoints/goldens.ts";
import type { GoldenCase } from "../support/checkpoints/goldens.ts";
import { startService } from "../support/service/running-service.ts";
import type { RunningService } from "../support/service/running-service.ts";
import { createTemporaryFolder } from "../support/temporary-folder.ts";
import type { TemporaryFolder } from "../support/temporary-folder.ts";

interface Answer {
  readonly error?: { readonly code: string; readonly message: string; readonly param: string | null };
  readonly choices?: readonly {
    readonly message: { readonly content: string };
    readonly logprobs: {
      readonly content: readonly { readonly top_logprobs: readonly { readonly logprob: number }[] }[];
    } | null;
  }[];
}

async function ask(
  { baseUrl }: RunningService,
  messages: readonly object[],
  fields: object = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly body: Answer }> {
  const response = await fetch(`${baseUrl}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify({ messages, temperature: 0, max_tokens: 8, ...fields }),
  });
  return { status: response.status, body: (await response.json()) as Answer };
}

/** Above rounding differences between splits of a prompt into steps, below the differences between pictures. */
const same = 0.01;
const other = 0.1;

function logprobsOf({ choices }: Answer): readonly number[] {
  return choices![0]!.logprobs!.content.flatMap(({ top_logprobs: top }) => top.map(({ logprob }) => logprob));
}

function distance(left: readonly number[], right: readonly number[]): number {
  return Math.max(...left.map((value, index) => Math.abs(value - right[index]!)));
}

const question = { type: "text", text: "What is in the picture?" };
const about = (...images: readonly object[]) => [{ role: "user", content: [...images, question] }];
const as = (key: string) => ({ authorization: `Bearer ${key}` });

describe("the shipped checkpoint", () => {
  let service: RunningService;
  let scene: string;
  let photo: string;

  beforeAll(async () => {
    service = await startService({
      MAX_NUM_SEQS: "2",
      API_KEY: "one,two",
      LIMIT_MM_PER_PROMPT: "image=2",
      MAX_REQUEST_DECODE_COST: "100000000",
    });
    const bytes = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
    scene = `data:image/png;base64,${bytes.toString("base64")}`;
    photo = await pictureReference("photo.png");
  });
  afterAll(() => service[Symbol.asyncDispose]());

  const image = (url: string, uuid?: string) => ({ type: "image_url", image_url: { url }, uuid });
  const named = (uuid: string) => ({ type: "image_url", image_url: null, uuid });
  const withLogprobs = { logprobs: true, top_logprobs: 5, max_tokens: 4 };

  /** Logprobs of the likeliest tokens at every step of the answer, which reflect what the model sees in the picture. */
  async function impression(part: object, key = "one", fields: object = {}): Promise<readonly number[]> {
    const { status, body } = await ask(service, about(part), { ...withLogprobs, ...fields }, as(key));
    expect({ status, error: body.error }).toEqual({ status: 200 });
    return logprobsOf(body);
  }

  test("a picture sent with a uuid can be referenced by the uuid alone", async () => {
    const sent = await impression(image(scene, "scene"));
    expect(distance(await impression(named("scene")), sent)).toBeLessThan(same);
    expect(distance(await impression({ type: "input_image", uuid: "scene" }), sent)).toBeLessThan(same);
    expect(distance(await impression({ image_url: null, uuid: "scene" }), sent)).toBeLessThan(same);
    expect(distance(await impression(image(photo)), sent)).toBeGreaterThan(other);
  });

  test("the same uuid under another API key or another salt is another picture", async () => {
    const mine = await impression(image(scene, "private"), "one");
    const refused = await ask(service, about(named("private")), {}, as("two"));
    expect(refused).toMatchObject({ status: 400, body: { error: { param: "messages[0].content[0].image_url" } } });
    expect(refused.body.error?.message).toMatch(/as a uuid only, and is not cached/);
    const theirs = await impression(image(photo, "private"), "two");
    expect(distance(theirs, await impression(image(photo), "two"))).toBeLessThan(same);
    expect(distance(await impression(named("private"), "one"), mine)).toBeLessThan(same);
    expect((await ask(service, about(named("private")), { cache_salt: "other" }, as("one"))).status).toBe(400);
  });

  test("a request's image processor options change only its own picture", async () => {
    const raw = { mm_processor_kwargs: { do_normalize: false } };
    const usual = await impression(image(scene));
    const changed = await impression(image(scene), "one", raw);
    expect(distance(changed, usual)).toBeGreaterThan(other);
    for (const options of [null, {}, { use_fast: true, return_tensors: "pt" }, { do_normalize: true }]) {
      const unchanged = await impression(image(scene), "one", { mm_processor_kwargs: options });
      expect(distance(unchanged, usual)).toBeLessThan(same);
    }

    const nested = { mm_processor_kwargs: { images_kwargs: { do_normalize: false } } };
    expect(distance(await impression(image(scene), "one", nested), changed)).toBeLessThan(same);

    await using deployment = await startService({ MM_PROCESSOR_KWARGS: '{"do_normalize": false}' });
    const { body } = await ask(deployment, about(image(scene)), withLogprobs);
    expect(distance(logprobsOf(body), changed)).toBeLessThan(same);
  });

  const embeddings = {
    type: "image_embeds",
    image_embeds: numpyFile("<f4", [1, 4], Buffer.alloc(16)).toString("base64"),
  };
  const deep = JSON.parse(`{"size": ${'{"a":'.repeat(9)}1${"}".repeat(9)}}`) as object;

  const hugeAvif = readFileSync(new URL("../fixtures/pixels/8000x8000.avif", import.meta.url));
  /** 16 bits deep, without any pixels: rejected before that is noticed. */
  const headerOnly = (edge: number): string => {
    const png = writePng({ width: edge, height: edge, bitDepth: 16, colourType: "rgb" }, new Uint8Array(0));
    return `data:image/png;base64,${png.toString("base64")}`;
  };

  test.for<[string, () => readonly object[], object, string, RegExp]>([
    ["embeddings", () => [embeddings], {}, "messages", /Set ENABLE_MM_EMBEDS=true/],
    [
      "three pictures",
      () => [named("a"), named("b"), named("c")],
      {},
      "messages",
      /3 images; .* 2, .*LIMIT_MM_PER_PROMPT/,
    ],
    ["a uuid that is not known", () => [named("unheard")], {}, "messages[0].content[0].image_url", /not cached/],
    [
      "a picture over http",
      () => [image("http://pictures.example/a.png")],
      {},
      "messages[0].content[0].image_url",
      /has the scheme http:; .* ALLOW_HTTP_IMAGES=true allows http:\.$/,
    ],
    [
      "a picture of a private host",
      () => [image("https://127.0.0.1/a.png")],
      {},
      "messages[0].content[0].image_url",
      /not public\. ALLOWED_PRIVATE_HOSTS lists the private hosts that are allowed\.$/,
    ],
    ["options of nine levels", () => [image(scene)], { mm_processor_kwargs: deep }, "mm_processor_kwargs.size", /size/],
    [
      "options that cannot be followed",
      () => [image(scene)],
      { mm_processor_kwargs: { image_mean: "grey" } },
      "mm_processor_kwargs.image_mean",
      /^image_mean is "grey"; expected a number from -255 to 255, or a list of three\.$/,
    ],
    [
      "options that leave float32",
      () => [image(scene)],
      { mm_processor_kwargs: { images_kwargs: { image_std: [1e-300, 1, 1] } } },
      "mm_processor_kwargs.images_kwargs.image_std[0]",
      /^images_kwargs\.image_std\[0\] is 1e-300; expected a number from 0\.001 to 255\.$/,
    ],
    [
      "options that are not known",
      () => [image(scene)],
      { mm_processor_kwargs: { topP: 1 } },
      "mm_processor_kwargs.topP",
      /^topP cannot be set; the options .* do_resize, size, .* do_pad\.$/,
    ],
    [
      "options without an image",
      () => [],
      { mm_processor_kwargs: { resample: 9 } },
      "mm_processor_kwargs.resample",
      /^resample is 9/,
    ],
    [
      "an AVIF of a kilobyte and 8,000 x 8,000 pixels",
      () => [image(`data:image/avif;base64,${hugeAvif.toString("base64")}`)],
      {},
      "messages[0].content[0].image_url",
      /8000x8000 pixels .* as 192266770 pixels of plain RGB; the limit is 134217728\. .* MAX_IMAGE_DECODE_COST sets the/,
    ],
    [
      "two pictures that are too much for one request",
      () => [image(headerOnly(6_000)), image(headerOnly(5_999))],
      {},
      "messages",
      /2 new images .* as \d+ pixels of plain RGB; the limit is 100000000\. .* MAX_REQUEST_DECODE_COST sets the limit/,
    ],
  ])("%s: rejected with the field and advice", async ([, parts, fields, param, message]) => {
    const { status, body } = await ask(service, about(...parts()), fields, as("one"));
    expect({ status, param: body.error?.param }).toEqual({ status: 400, param });
    expect(body.error?.message).toMatch(message);
  });
});

describe("options of the image processor at their limits and beyond", () => {
  let service: RunningService;
  let scene: string;

  beforeAll(async () => {
    service = await startService({ MAX_NUM_SEQS: "4" });
    const bytes = await readFile(new URL("../../models/fovea-shapes/examples/scene.png", import.meta.url));
    scene = `data:image/png;base64,${bytes.toString("base64")}`;
  });
  afterAll(() => service[Symbol.asyncDispose]());

  const options = ["do_resize", "size", "default_to_square", "resample", "do_center_crop", "crop_size", "do_pad"];
  const scaling = ["do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std"];
  const others = ["use_fast", "device", "data_format", "return_tensors", "images_kwargs", "unknown"];

  /** In JSON's notation: JSON.stringify cannot write 1e400. */
  const values = ["true", "false", '"yes"', "0", "-1", "0.001", "1", "255", "64", "1e-300", "1e308", "-1e308", "1e400"];
  const lists = ["[]", "[0.3, 0.3]", "[1e-300, 1, 1]", "[255, -255, 0]", "[64, 64]", '[1, 1, "1"]'];
  const objects = ["{}", '{"height": 64, "width": 64}', '{"shortest_edge": 16384}', '{"height": 1e308, "width": 1}'];
  const deep = `${"[".repeat(3_000)}1${"]".repeat(3_000)}`;

  const content = () => [
    { type: "image_url", image_url: { url: scene } },
    { type: "text", text: "What is in the picture?" },
  ];

  async function askWith(options: string): Promise<{ readonly status: number; readonly body: Answer }> {
    const messages = JSON.stringify([{ role: "user", content: content() }]);
    const response = await fetch(`${service.baseUrl}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: `{"messages": ${messages}, "temperature": 0, "max_tokens": 12, "mm_processor_kwargs": ${options}}`,
    });
    return { status: response.status, body: (await response.json()) as Answer };
  }

  test.for([...values, ...lists, ...objects, deep].map((value) => [value.slice(0, 40), value] as const))(
    "%s is accepted or rejected by its path, and the next request is answered as before",
    async ([, value]) => {
      const names = [...options, ...scaling, ...others];
      const answers = await Promise.all(names.map((name) => askWith(`{"${name}": ${value}}`)));
      for (const [index, { status, body }] of answers.entries()) {
        const isPlaced = body.error?.param?.startsWith(`mm_processor_kwargs.${names[index]}`) ?? false;
        const isAboutPicture = /^(mm_processor_kwargs|messages\[0\]\.content\[0\]\.image_url)$/.test(
          body.error?.param ?? "",
        );
        expect([names[index], status, status === 200 || isPlaced || isAboutPicture]).toEqual([
          names[index],
          status === 200 ? 200 : 400,
          true,
        ]);
      }
      const { body } = await askWith("{}");
      expect(body.choices?.[0]?.message.content).toMatch(/red circle/);
    },
  );

  test("none of these requests was logged as our failure", () => {
    expect(service.log()).not.toContain('"level":"error"');
  });
});

describe("a checkpoint that accepts embeddings", () => {
  let cache: TemporaryFolder;
  let service: RunningService;
  let golden: GoldenCase;
  let picture: string;
  let embeddings: readonly object[];

  beforeAll(async () => {
    cache = await createTemporaryFolder();
    service = await startService({
      MODEL: join(goldensFolder, "llava-default"),
      DTYPE: "float32",
      ENABLE_MM_EMBEDS: "true",
      CACHE_FOLDER: cache.path,
    });
    const { cases } = await loadGoldens("llava-default");
    golden = cases.find(({ pictures }) => pictures.length === 3)!;
    picture = await pictureReference(golden.pictures[0]!);
    const features = golden.imageFeatures!;
    const size = features.length / golden.pictures.length;
    embeddings = golden.pictures.map((_, index) => {
      const rows = Buffer.from(features.slice(index * size, (index + 1) * size).buffer);
      return part(numpyFile("<f4", [1, 16, size / 16], rows));
    });
  });
  afterAll(async () => {
    await service[Symbol.asyncDispose]();
    await cache[Symbol.asyncDispose]();
  });

  const part = (file: Buffer) => ({ type: "image_embeds", image_embeds: file.toString("base64") });
  const fill = (images: readonly object[]) => {
    const rest = images.values();
    return golden.messages.map(({ role, content }) => ({
      role,
      content: content.map((item) => (item.type === "image" ? rest.next().value : item)),
    }));
  };
  const greedy = () => ({ max_tokens: golden.greedyTokenIds.length, ignore_eos: true, skip_special_tokens: false });

  async function textOf(tokenIds: readonly number[]): Promise<string> {
    const response = await fetch(`${service.baseUrl}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: tokenIds, echo: true, max_tokens: 0, skip_special_tokens: false }),
    });
    return ((await response.json()) as { choices: [{ text: string }] }).choices[0].text;
  }

  test("answers about recorded embeddings, in any notation, as transformers does about the pictures", async () => {
    const references = await Promise.all(golden.pictures.map(pictureReference));
    const pictures = fill(references.map((url) => ({ type: "image_url", image_url: { url } })));
    const expected = (await ask(service, pictures, greedy())).body.choices?.[0]?.message.content;
    expect(expected).toBe(await textOf(golden.greedyTokenIds));
    for (const spelled of [
      embeddings,
      embeddings.map(({ image_embeds: base64 }: { image_embeds?: string }) => ({ image_embeds: base64 })),
      embeddings.map(({ image_embeds: base64 }: { image_embeds?: string }) => ({
        type: "image_embeds",
        image_embeds: `data:application/octet-stream;base64,${base64}`,
      })),
    ]) {
      const { status, body } = await ask(service, fill(spelled), greedy());
      expect(status).toBe(200);
      expect(body.choices?.[0]?.message.content).toBe(expected);
    }
  });

  test("a limit of no images is for embeddings alone, which need no vision encoder", async () => {
    await using alone = await startService({
      MODEL: join(goldensFolder, "llava-default"),
      DTYPE: "float32",
      ENABLE_MM_EMBEDS: "true",
      LIMIT_MM_PER_PROMPT: '{"image": 0}',
      CACHE_FOLDER: cache.path,
    });
    const { status, body } = await ask(alone, fill(embeddings), greedy());
    expect({ status, text: body.choices?.[0]?.message.content }).toEqual({
      status: 200,
      text: await textOf(golden.greedyTokenIds),
    });
    const rejected = await ask(alone, about({ type: "image_url", image_url: { url: picture } }));
    expect(rejected.status).toBe(400);
    expect(rejected.body.error?.message).toMatch(/has 1 images; the limit is 0, set by the server/);
    const mixed = await ask(alone, about(embeddings[0]!, { type: "image_url", image_url: { url: picture } }));
    expect(mixed.status).toBe(400);
    expect(mixed.body.error?.message).toMatch(/has 2 images; the limit is 0/);
  });

  const here = "messages[0].content[0].image_embeds";
  const rows = Buffer.alloc(4 * 48);
  test.for<[string, () => object[], string, RegExp]>([
    [
      "a shape of 10^15 rows",
      () => [part(numpyFile("<f4", [1e15, 48], rows))],
      here,
      /1000000000000000 rows; .* 1 to \d+/,
    ],
    ["a width that is not the model's", () => [part(numpyFile("<f4", [1, 33], rows))], here, /33 wide/],
    ["text in base64", () => [part(Buffer.from("not a file of numbers"))], here, /neither an \.npy nor a safetensors/],
    ["text", () => [{ type: "image_embeds", image_embeds: "not base64!!" }], here, /not base64/],
    ["nothing", () => [{ type: "image_embeds", image_embeds: "" }], here, /no data/],
    ["null", () => [{ type: "image_embeds", image_embeds: null, uuid: "a" }], here, /must be a string/],
    ["a list", () => [{ type: "image_embeds", image_embeds: [1, 2] }], here, /must be a string/],
    ["a file", () => [{ type: "image_embeds", image_embeds: "file:///etc/passwd" }], here, /file/],
    [
      "a picture beside embeddings",
      () => [embeddings[0]!, { type: "image_url", image_url: { url: picture } }],
      "messages",
      /1 image embeddings among its 2 images/,
    ],
  ])("%s: rejected by its field, and the next request is served", async ([, images, param, message]) => {
    const { status, body } = await ask(service, about(...images()));
    expect({ status, param: body.error?.param }).toEqual({ status: 400, param });
    expect(body.error?.message).toMatch(message);
    expect((await ask(service, [{ role: "user", content: "Hello?" }])).status).toBe(200);
  });
});
