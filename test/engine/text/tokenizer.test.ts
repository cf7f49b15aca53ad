import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { loadTokenizer, parseTokenizer } from "../../../engine/text/tokenizer.ts";
import { countTurns } from "../../support/count-turns.ts";
import { fixtureFamilies, loadFixtureTokenizer, readCases } from "./fixture-tokenizer.ts";

describe.for(fixtureFamilies)("%s", (family) => {
  test("ids equal those of Hugging Face tokenizers", async () => {
    const tokenizer = await loadFixtureTokenizer(family);
    const cases = await readCases(family);
    expect(cases.length).toBeGreaterThan(150);
    for (const { text, ids, idsWithSpecial } of cases) {
      const plain = await tokenizer.encode(text, { addSpecialTokens: false });
      const withSpecial = await tokenizer.encode(text, { addSpecialTokens: true });
      expect({ text, plain, withSpecial }).toEqual({ text, plain: ids, withSpecial: idsWithSpecial });
    }
  });

  test("the text of tokens equals that of Hugging Face tokenizers", async () => {
    const tokenizer = await loadFixtureTokenizer(family);
    for (const { text, idsWithSpecial, decodedWithSpecial } of await readCases(family)) {
      expect({ text, decoded: await tokenizer.detokenize(idsWithSpecial) }).toEqual({
        text,
        decoded: decodedWithSpecial,
      });
    }
  });

  test("a text long enough to be encoded in pieces has the ids of its words", async () => {
    const tokenizer = await loadFixtureTokenizer(family);
    const sentence = "The picture shows a red circle, 12 blue squares and don't\n\tforget Straße. ";
    const once = await tokenizer.encode(`x${sentence}`, { addSpecialTokens: false });
    const many = await tokenizer.encode(`x${sentence.repeat(400)}`, { addSpecialTokens: false });
    const twice = await tokenizer.encode(`x${sentence.repeat(2)}`, { addSpecialTokens: false });
    if (once === null || many === null || twice === null) throw new Error("Encoding ended early.");
    expect(many.length).toBe(once.length + 399 * (twice.length - once.length));
    expect(many.slice(0, twice.length - 2)).toEqual(twice.slice(0, -2));
    expect(many.slice(-once.length + 2)).toEqual(twice.slice(-once.length + 2));
  });

  test("an added token inside a literal range is text", async () => {
    const tokenizer = await loadFixtureTokenizer(family);
    const imageId = tokenizer.tokenId("<image>") as number;
    const text = "a <image> and <image> b";
    const tokenIds = await tokenizer.encode(text, { addSpecialTokens: false, literal: [{ start: 2, end: 9 }] });
    expect(tokenIds?.filter((id) => id === imageId)).toHaveLength(1);
    const bytes = Buffer.concat((tokenIds as number[]).map((id) => tokenizer.tokenBytes(id)));
    expect(bytes.toString().replaceAll(" ", "")).toBe(text.replaceAll(" ", ""));
  });
});

test("encoding stops early beyond maxTokens, with many words or one", async () => {
  for (const family of fixtureFamilies) {
    const tokenizer = await loadFixtureTokenizer(family);
    const options = { addSpecialTokens: false, maxTokens: 1000 };
    expect(await tokenizer.encode("two words ".repeat(50_000), options)).toBeNull();
    expect(await tokenizer.encode("a".repeat(1_000_000), options)).toBeNull();
    expect(await tokenizer.encode("two words ".repeat(50), options)).not.toBeNull();
  }
});

test("other work runs while a long text is encoded", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const text = "some words of a long text ".repeat(8000);
  expect(await countTurns(() => tokenizer.encode(text, { addSpecialTokens: false }))).toBeGreaterThan(20);
});

test.for<readonly [string, string, number]>([
  ["beginnings of added tokens", "<".repeat(500_000), 1000],
  ["words without letters", "12, 34! ".repeat(40_000), 1_000_000],
])("other work runs while a text of %s is encoded", async ([, text, maxTokens]) => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  expect(await countTurns(() => tokenizer.encode(text, { addSpecialTokens: false, maxTokens }))).toBeGreaterThan(3);
});

test.for<readonly [string, number]>([
  ["short texts", 140],
  ["texts of several pieces", 500],
])("%s that are encoded at once share the turns of the event loop", async ([, numRepetitions]) => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const text = "some words of a text that others ".repeat(numRepetitions);
  let numEnded = 0;
  let mostInATurn = 0;
  let numBefore = 0;
  const look = (): void => {
    mostInATurn = Math.max(mostInATurn, numEnded - numBefore);
    numBefore = numEnded;
    if (numEnded < 32) setImmediate(look);
    else seen.resolve();
  };
  const seen = Promise.withResolvers<void>();
  setImmediate(look);
  const encodings = Array.from({ length: 32 }, async () => {
    const tokenIds = await tokenizer.encode(text, { addSpecialTokens: false });
    numEnded += 1;
    return tokenIds;
  });
  const [first, ...others] = await Promise.all(encodings);
  for (const other of others) expect(other).toEqual(first);
  await seen.promise;
  // Another turn may begin between two looks.
  expect(mostInATurn).toBeLessThanOrEqual(2);
});

test("an encoding that is aborted while it waits leaves the turns to others", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const text = "some words of a text ".repeat(1000);
  const controller = new AbortController();
  const encode = (signal?: AbortSignal) =>
    tokenizer.encode(text, { addSpecialTokens: false, ...(signal && { signal }) });
  const alone = await encode();
  const [before, aborted, after] = [encode(), encode(controller.signal), encode()];
  controller.abort(new Error("The client left."));
  await expect(aborted).rejects.toThrow("The client left.");
  expect(await Promise.all([before, after])).toEqual([alone, alone]);
});

test("words of one piece have the ids that they have alone", async () => {
  for (const family of fixtureFamilies) {
    const tokenizer = await loadFixtureTokenizer(family);
    const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
    const unit = "12, (34)!\n\n";
    const [once, twice, many] = [
      await encode(unit.repeat(1)),
      await encode(unit.repeat(2)),
      await encode(unit.repeat(3000)),
    ];
    if (once === null || twice === null || many === null) throw new Error("Encoding ended early.");
    expect(many.length).toBe(once.length + 2999 * (twice.length - once.length));
  }
});

test("a word that would keep the event loop for seconds is rejected", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
  await expect(encode("a".repeat(300_000))).rejects.toMatchObject({
    code: "invalid_argument",
    parameter: "prompt",
    message: "The prompt has a word of 300000 characters; the limit is 262144.",
  });
  // More than V8's expressions can match.
  await expect(encode("漢字".repeat(5_000_000))).rejects.toMatchObject({
    code: "invalid_argument",
    message: "The prompt has a word of more than 262144 characters, which is the limit.",
  });
  const legacy = await loadFixtureTokenizer("llama2-legacy");
  await expect(legacy.encode("1 ".repeat(600_000), { addSpecialTokens: false })).rejects.toMatchObject({
    code: "invalid_argument",
    message:
      "The prompt has a text without a space between letters of more than 1048576 characters, which is the limit.",
  });
});

test("a million characters without letters are divided into words as they are encoded", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
  const [once, twice] = [await encode("!? \n"), await encode("!? \n".repeat(2))];
  const many = await encode("!? \n".repeat(270_000));
  expect(many?.length).toBe(once!.length + 269_999 * (twice!.length - once!.length));
});

test("other work runs while a long text is normalised", async () => {
  const tokenizer = await loadFixtureTokenizer("llama2-legacy");
  const encode = () => tokenizer.encode(" ".repeat(1_000_000), { addSpecialTokens: false, maxTokens: 1 });
  expect(await countTurns(encode)).toBeGreaterThan(10);
});

test("a long text that is normalised in slices has one prefix", async () => {
  const tokenizer = await loadFixtureTokenizer("llama2-legacy");
  const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
  const ids = await encode("the picture ".repeat(20_000));
  expect(tokenizer.decode(ids!)).toBe(` ${"the picture ".repeat(20_000)}`);
});

test("long words of a Unigram model are encoded or rejected", async () => {
  const tokenizer = await loadTokenizer(new URL("../../fixtures/hub/fuyu", import.meta.url).pathname);
  const encode = (text: string) => tokenizer.encode(text, { addSpecialTokens: false });
  // Each character is unknown to the vocabulary and becomes three bytes.
  expect((await encode("漢".repeat(60_000)))?.length).toBe(180_001);
  await expect(encode("a".repeat(130_000))).rejects.toMatchObject({
    code: "invalid_argument",
    message: "The prompt has a word of 130001 characters; the limit is 65536.",
  });
});

// Recorded with Hugging Face tokenizers 0.23.3.
test.for<[string, object, readonly string[]]>([
  ["always", { prepend_scheme: "always" }, ["the picture", " the  picture", "<s>the", "<image> the", ""]],
  ["first", { prepend_scheme: "first" }, ["the picture", " the  picture", "<s>the", "<image> the", ""]],
  ["never", { prepend_scheme: "never" }, [" the picture", "  the  picture", "<s>the", "<image> the", ""]],
  ["add_prefix_space", { add_prefix_space: true }, ["the picture", " the  picture", "<s>the", "<image> the", ""]],
])("a Metaspace decoder that prepends %s drops its space at the start of a text", async ([, options, decoded]) => {
  const decoder = { type: "Metaspace", replacement: "▁", ...options };
  const tokenizer = await loadFixtureTokenizer("llama2-metaspace", {}, { decoder });
  const prompts = [[362, 571, 349], [337, 362, 337, 571, 349], [1, 307, 353], [620, 362], []];
  expect(await Promise.all(prompts.map((tokenIds) => tokenizer.detokenize(tokenIds)))).toEqual(decoded);
});

test("half a surrogate pair becomes a replacement character", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const tokenIds = await tokenizer.encode("a\ud800b", { addSpecialTokens: false });
  expect(tokenizer.decode(tokenIds ?? [])).toBe("a\uFFFDb");
});

test("an aborted signal ends a long encoding", async () => {
  const tokenizer = await loadFixtureTokenizer("qwen2");
  const reason = new Error("gone");
  const encoding = tokenizer.encode("words and words ".repeat(8000), {
    addSpecialTokens: false,
    signal: AbortSignal.abort(reason),
  });
  await expect(encoding).rejects.toBe(reason);
});

test("add_bos_token and add_eos_token of tokenizer_config.json override tokenizer.json", async () => {
  const tokenizer = await loadFixtureTokenizer("llama3", { add_bos_token: false, add_eos_token: true });
  const plain = await tokenizer.encode("hello", { addSpecialTokens: false });
  const end = tokenizer.tokenId("</s>");
  expect(await tokenizer.encode("hello", { addSpecialTokens: true })).toEqual([...(plain ?? []), end]);
});

test("a token's bytes are what it adds to the text", async () => {
  const tokenizer = await loadFixtureTokenizer("llama2-legacy");
  const bytes = (token: string): number[] => [...tokenizer.tokenBytes(tokenizer.tokenId(token) as number)];
  expect(bytes("<0xE2>")).toEqual([0xe2]);
  expect(bytes("▁the")).toEqual([...Buffer.from(" the")]);
  expect(tokenizer.tokenBytes(1_000_000)).toHaveLength(0);
  expect(tokenizer.isSpecial(tokenizer.tokenId("</s>") as number)).toBe(true);
  expect(tokenizer.isSpecial(tokenizer.tokenId("<strip>") as number)).toBe(false);
});

describe("a broken checkpoint", () => {
  const cases: [string, Record<string, string>, string, RegExp][] = [
    ["has no tokenizer.json", {}, "invalid_checkpoint", /has no tokenizer\.json\. .*save_pretrained\(folder\)/],
    [
      "has a Git LFS pointer in its place",
      { "tokenizer.json": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n" },
      "invalid_checkpoint",
      /^tokenizer\.json is a Git LFS pointer, not the file; run `git lfs pull`/,
    ],
    ["has one that is not JSON", { "tokenizer.json": "{" }, "invalid_checkpoint", /tokenizer.json .* not JSON/],
    [
      "has one without a model",
      { "tokenizer.json": "{}" },
      "invalid_checkpoint",
      /tokenizer.json of the checkpoint: model is missing; expected an object\.$/,
    ],
    [
      "has a model of an unknown kind",
      { "tokenizer.json": '{"model":{"type":"Telepathy"}}' },
      "unsupported_model",
      /unsupported kind/,
    ],
    [
      "has a wrong tokenizer_config.json",
      { "tokenizer.json": '{"model":{}}', "tokenizer_config.json": '{"bos_token": 5}' },
      "invalid_checkpoint",
      /tokenizer_config.json of the checkpoint: bos_token is 5; /,
    ],
  ];
  test.for(cases)("that %s is rejected by name", async ([, files, code, message]) => {
    const folder = await mkdtemp(join(tmpdir(), "fovea-tokenizer-"));
    try {
      for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
      await expect(loadTokenizer(folder)).rejects.toMatchObject({ code, message: expect.stringMatching(message) });
    } finally {
      await rm(folder, { recursive: true });
    }
  });
});

test("the golden checkpoints' prompts have transformers' ids", async () => {
  const folder = new URL("../../fixtures/goldens/llava-default/", import.meta.url).pathname;
  const tokenizer = await loadTokenizer(folder);
  const goldens: { text: string; pictures: string[]; promptTokenIds: number[] }[] = JSON.parse(
    await readFile(join(folder, "goldens.json"), "utf8"),
  );
  const textOnly = goldens.filter((golden) => golden.pictures.length === 0);
  expect(textOnly.length).toBeGreaterThan(0);
  for (const { text, promptTokenIds } of textOnly) {
    expect(await tokenizer.encode(text, { addSpecialTokens: false })).toEqual(promptTokenIds);
  }
});

test("special tokens have the names that transformers gives to chat templates", async () => {
  const json = await readFile(new URL("../../fixtures/tokenizers/qwen2.json", import.meta.url), "utf8");
  const config = {
    bos_token: null,
    eos_token: "<|im_end|>",
    pad_token: "<|endoftext|>",
    cls_token: "<|im_start|>",
    sep_token: { __type: "AddedToken", content: "<|im_end|>", lstrip: false, normalized: false },
    image_token: "<|image_pad|>",
    note_token: 7,
    add_bos_token: false,
    extra_special_tokens: { row_token: "<|vision_end|>" },
  };
  // `special_tokens_map` of transformers 5.23.
  expect(parseTokenizer(json, JSON.stringify(config)).namedTokens).toEqual({
    eos_token: "<|im_end|>",
    pad_token: "<|endoftext|>",
    cls_token: "<|im_start|>",
    sep_token: "<|im_end|>",
    image_token: "<|image_pad|>",
    row_token: "<|vision_end|>",
  });
  const withList = { extra_special_tokens: ["<|im_start|>"], model_specific_special_tokens: { box_token: "<|box|>" } };
  expect(parseTokenizer(json, JSON.stringify(withList)).namedTokens).toEqual({ box_token: "<|box|>" });
});

describe("added tokens of tokenizer_config.json", () => {
  const token = { lstrip: false, rstrip: false, normalized: false, single_word: false, special: true };
  const load = async (config: object, specialTokensMap: object | null = null) => {
    const json = await readFile(new URL("../../fixtures/tokenizers/qwen2.json", import.meta.url), "utf8");
    return parseTokenizer(json, JSON.stringify(config), {
      specialTokensMap: specialTokensMap === null ? null : JSON.stringify(specialTokensMap),
    });
  };
  const encode = async (config: object, text: string) => (await load(config)).encode(text, { addSpecialTokens: false });

  test("are those of tokenizer_config.json, with the ids of transformers 5.24", async () => {
    const config = {
      added_tokens_decoder: {
        556: { ...token, content: "<new>" },
        557: { ...token, content: "<new2>", special: false },
        // Of another token, so that the next free id counts.
        1: { ...token, content: "<new3>" },
      },
    };
    expect(await encode(config, "<new>x <new2>")).toEqual([557, 93, 226, 558]);
    expect(await encode(config, "<new3>")).toEqual([556]);
  });

  test("have the next free id, whatever their own", async () => {
    expect(await encode({ added_tokens_decoder: { 600: { ...token, content: "<new>" } } }, "<new>x")).toEqual([
      556, 93,
    ]);
  });

  test("may only be named there, as in transformers 5.24", async () => {
    const config = {
      eos_token: "<end>",
      image_token: "<img>",
      additional_special_tokens: ["<extra>", { __type: "AddedToken", ...token, content: "<more>" }],
      pad_token: "He",
    };
    expect(await encode(config, "<end><img><extra><more>He<extra>")).toEqual([556, 558, 559, 560, 557, 559]);
    const tokenizer = await load(config);
    expect([556, 557, 558, 559, 560].every((id) => tokenizer.isSpecial(id))).toBe(true);
    const lists = { extra_special_tokens: ["<one>"], additional_special_tokens: ["<two>"] };
    expect(await encode(lists, "<one><two>")).toEqual([556, 33, 89, 395, 35]);
  });

  test("are described by tokenizer_config.json", async () => {
    const described = (flags: object) => ({
      added_tokens_decoder: { 553: { ...token, content: "<strip>", ...flags } },
    });
    expect(await encode({}, "a <strip> b")).toEqual([70, 553, 71]);
    expect(await encode(described({ lstrip: true }), "a <strip> b")).toEqual([70, 553, 315]);
    expect(await encode(described({ rstrip: true }), "a <strip> b")).toEqual([70, 226, 553, 71]);
  });

  test("may be special there only", async () => {
    const strip = "<strip>";
    const isSpecial = async (config: object): Promise<boolean> => {
      const tokenizer = await load(config);
      return tokenizer.isSpecial(tokenizer.tokenId(strip)!);
    };
    expect(await isSpecial({})).toBe(false);
    expect(await isSpecial({ added_tokens_decoder: { 553: { ...token, content: strip } } })).toBe(true);
  });

  test("are named by special_tokens_map.json if tokenizer_config.json does not list added tokens", async () => {
    const map = { bos_token: "<s>", eos_token: { ...token, content: "</s>" }, pad_token: null };
    expect((await load({}, map)).namedTokens).toEqual({ bos_token: "<s>", eos_token: "</s>" });
    const { namedTokens, eosToken } = await load({ eos_token: "<unk>", add_bos_token: false }, map);
    expect([namedTokens.eos_token, eosToken]).toEqual(["</s>", "</s>"]);
    expect((await load({ eos_token: "<unk>", added_tokens_decoder: {} }, map)).eosToken).toBe("<unk>");
  });
});
