/** Outputs whose text is only text. */
import type { Generation } from "../generations.ts";
import type { ParsedGeneration } from "./parsed-delta.ts";

export async function* parsedAsText(generations: AsyncIterable<Generation>): AsyncGenerator<ParsedGeneration> {
  for await (const { index, output } of generations) {
    const delta = output.text === "" ? {} : { content: output.text };
    yield { index, output, delta, finishReason: output.finishReason };
  }
}
