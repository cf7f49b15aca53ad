/** Truncation around image markers that are several tokens of ordinary text. */
import { join } from "node:path";
import { expect, test } from "vitest";

import { createSamplingParams } from "../../../engine/index.ts";
import type { ContentPart, Engine, RequestOutput } from "../../../engine/index.ts";
import { loadTokenizer } from "../../../engine/text/tokenizer.ts";
import { pictureReference } from "../../support/checkpoints/goldens.ts";
import { createTemporaryFolder } from "../../support/temporary-folder.ts";
import { miniGpt4Config, miniGpt4Folder, startEngine } from "./pipeline-engine.ts";

const NUM_QUERY_TOKENS = 8;

async function truncated(engine: Engine, parts: readonly ContentPart[], limit: number, side: "left" | "right") {
  const request = {
    requestId: `${side}-${limit}`,
    prompt: { kind: "parts", parts, addSpecialTokens: true },
    samplingParams: createSamplingParams({ temperature: 0, maxTokens: 1 }),
    includePrompt: true,
    truncatePromptTokens: limit,
    truncationSide: side,
  } as const;
  const outputs: RequestOutput[] = [];
  for await (const output of engine.generate(request)) outputs.push(output);
  const [{ prompt, numImageTokens, numOmittedImages = 0 }] = outputs as [RequestOutput];
  return { text: prompt!.text, numTokens: prompt!.tokens.length, numImageTokens, numOmittedImages };
}

test.for(["left", "right"] as const)(
  "whole pictures with whole markers are left at every length from the %s",
  async (side) => {
    await using cache = await createTemporaryFolder();
    await using engine = await startEngine(miniGpt4Config(cache.path));
    const tokenizer = await loadTokenizer(join(miniGpt4Folder, "llama"));
    const placeholder = tokenizer.token(0)!;
    const image = async (name: string): Promise<ContentPart> => ({
      type: "image",
      reference: await pictureReference(name),
    });
    const parts: ContentPart[] = [
      { type: "text", text: "One <" },
      await image("drawing.png"),
      { type: "text", text: "> and" },
      await image("photo.png"),
      { type: "text", text: "</" },
    ];
    const whole = await truncated(engine, parts, 512, side);
    expect(whole).toMatchObject({ numImageTokens: 2 * NUM_QUERY_TOKENS, numOmittedImages: 0 });
    const seen = new Set<number>();
    for (let limit = 2; limit < whole.numTokens; limit++) {
      const { text, numTokens, numImageTokens, numOmittedImages } = await truncated(engine, parts, limit, side).catch(
        () => ({ text: "", numTokens: 0, numImageTokens: 0, numOmittedImages: 2 }),
      );
      const count = (part: string): number => text.split(part).length - 1;
      const numImages = 2 - numOmittedImages;
      seen.add(numImages);
      expect(numTokens).toBeLessThanOrEqual(limit);
      expect({ limit, numImageTokens }).toEqual({ limit, numImageTokens: numImages * NUM_QUERY_TOKENS });
      expect({ limit, starts: count("<Img>"), ends: count("</Img>"), placeholders: count(placeholder) }).toEqual({
        limit,
        starts: numImages,
        ends: numImages,
        placeholders: numImages * NUM_QUERY_TOKENS,
      });
      // Nothing of a marker is left alone.
      expect(text.replaceAll("<Img>", "").replaceAll("</Img>", "")).not.toMatch(/Img|\/I|mg>/);
    }

    expect(seen).toEqual(new Set([0, 1, 2]));
  },
);
