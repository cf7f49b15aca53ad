/** Bodies of requests, so that the first request finds the code that checks its fields compiled. */
import { chatCompletionKind } from "./chat-completion-kind.ts";
import { completionKind } from "./completion-kind.ts";
import { parseFields } from "./schemas/parse-fields.ts";

const text = { type: "text", text: "What is this?" };
const picture = { type: "image_url", image_url: { url: "data:image/png;base64," } };

export function warmUpSchemas(): void {
  parseFields(chatCompletionKind.schema, { messages: [{ role: "user", content: [picture, text] }] });
  parseFields(completionKind.schema, { prompt: text.text });
}
