/** Requests of a load to a server that speaks OpenAI's protocol. */
import { shape } from "../shape.ts";
import { createPrompts, type Load, type Send } from "./run-load.ts";

/** Streams of `/v1/completions`; tokens are counted by their ids, since an event may have several. */
export function sendOverHttp(url: string, model: string | undefined, load: Load): Send {
  const nextPrompt = createPrompts(load.promptTokens, shape.vocabSize);
  return async (_, onTokens) => {
    const fields = { temperature: 0, ignore_eos: true, stream: true, return_token_ids: true };
    const response = await fetch(`${url}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, prompt: nextPrompt(), max_tokens: load.outputTokens, ...fields }),
    });
    if (!response.ok || response.body === null) throw new Error(`/v1/completions answered ${response.status}.`);
    let numTokens = 0;
    let rest = "";
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const lines = (rest + text).split("\n");
      rest = lines.pop()!;
      const received = lines.reduce((count, line) => count + tokensOf(line), 0);
      numTokens += received;
      onTokens(received);
    }
    if (numTokens !== load.outputTokens)
      throw new Error(`${url} answered ${numTokens} of ${load.outputTokens} tokens.`);
  };
}

interface CompletionEvent {
  readonly choices: readonly { readonly token_ids?: readonly number[] | null }[];
}

function tokensOf(line: string): number {
  if (!line.startsWith("data: {")) return 0;
  const { choices } = JSON.parse(line.slice("data: ".length)) as CompletionEvent;
  return choices[0]?.token_ids?.length ?? 0;
}
