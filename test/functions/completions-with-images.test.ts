/** Text completions with pictures over HTTP have the tokens that transformers has, prompt and answer. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";

import { goldensFolder, loadGoldens, pictureReference } from "../support/checkpoints/goldens.ts";
import { startService } from "../support/service/running-service.ts";

interface Choice {
  readonly token_ids: readonly number[];
  readonly prompt_token_ids: readonly number[];
}

/** Families with fixed and with free picture sizes, and one without a placeholder in the text. */
describe.for(["llava-default", "qwen2-vl", "fuyu"])("%s", (name) => {
  test("text and token ids with pictures", async () => {
    const { cases, checkpointFolder } = await loadGoldens(name);
    const texts = JSON.parse(await readFile(join(goldensFolder, name, "goldens.json"), "utf8")) as readonly {
      readonly name: string;
      readonly text?: string;
    }[];
    await using service = await startService({ MODEL: checkpointFolder, MAX_NUM_SEQS: "2" });
    const complete = async (body: object): Promise<Choice> => {
      const response = await fetch(`${service.baseUrl}/v1/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          temperature: 0,
          max_tokens: 16,
          ignore_eos: true,
          add_special_tokens: false,
          return_token_ids: true,
          ...body,
        }),
      });
      const answer = (await response.json()) as { readonly choices: readonly Choice[] };
      expect(answer).toMatchObject({ choices: [expect.anything()] });
      return answer.choices.at(0)!;
    };
    const withPictures = cases.filter(({ pictures }) => pictures.length > 0);
    expect(withPictures.length).toBeGreaterThan(1);
    for (const golden of withPictures) {
      const images = await Promise.all(golden.pictures.map((file) => pictureReference(file)));
      const text = texts.find((row) => row.name === golden.name)?.text;
      // Fuyu's text has no placeholder, so ids that hold the picture's tokens would get the picture again.
      const prompts = [...(text === undefined ? [] : [text]), ...(name === "fuyu" ? [] : [golden.promptTokenIds])];
      for (const prompt of prompts) {
        const { prompt_token_ids: promptIds, token_ids: tokenIds } = await complete({ prompt, images });
        expect([golden.name, promptIds]).toEqual([golden.name, golden.promptTokenIds]);
        expect([golden.name, tokenIds]).toEqual([golden.name, golden.greedyTokenIds.slice(0, 16)]);
      }
    }
  });
});
