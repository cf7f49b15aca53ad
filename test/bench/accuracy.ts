/** Fraction of held-out questions that the service answers exactly right, asked over HTTP like by a client. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import { limitFigure, plainFigure, reportProgress } from "./measure.ts";
import type { Figure } from "./measure.ts";
import { startServerProcess, untilReady } from "./server-process.ts";

const heldOutFolder = fileURLToPath(new URL("../../models/fovea-shapes/heldout/", import.meta.url));
const numConcurrent = 16;
const targetPercent = 95;

interface Tally {
  right: number;
  asked: number;
}

interface HeldOutQuestion {
  readonly image: string;
  readonly question: string;
  readonly answer: string;
  readonly kind: string;
}

async function ask(url: string, { image, question }: HeldOutQuestion): Promise<string> {
  const picture = await readFile(join(heldOutFolder, image));
  const response = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      temperature: 0,
      messages: [
        {
          role: "user",
          content: [
            { type: "image_url", image_url: { url: `data:image/png;base64,${picture.toString("base64")}` } },
            { type: "text", text: question },
          ],
        },
      ],
    }),
  });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  const answer = (await response.json()) as { choices: [{ message: { content: string } }] };
  return answer.choices[0].message.content;
}

export interface AccuracyOptions {
  /** Settings of the service. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Default: all questions. */
  readonly numQuestions?: number;
}

/** One figure per kind of question, then the figure of the whole set, which the README states. */
export async function benchAccuracy({ environment = {}, numQuestions }: AccuracyOptions = {}): Promise<Figure[]> {
  const lines = (await readFile(join(heldOutFolder, "questions.jsonl"), "utf8")).trim().split("\n");
  const questions = lines.slice(0, numQuestions).map((line) => JSON.parse(line) as HeldOutQuestion);
  await using server = await startServerProcess(environment);
  await untilReady(server);
  const byKind = new Map<string, Tally>();
  let next = 0;
  const askOn = async (): Promise<void> => {
    while (next < questions.length) {
      const question = questions[next++]!;
      const answer = await ask(server.url, question);
      const tally = byKind.get(question.kind) ?? { right: 0, asked: 0 };
      tally.asked += 1;
      if (answer === question.answer) tally.right += 1;
      byKind.set(question.kind, tally);
      if (next % 200 === 0) reportProgress(`${next} of ${questions.length} questions`);
    }
  };
  await Promise.all(Array.from({ length: numConcurrent }, askOn));
  const percentOf = ({ right, asked }: Tally): number[] => [(right / asked) * 100];
  const figures = [...byKind].map(([kind, tally]) =>
    plainFigure(`held-out: ${kind} (${tally.asked})`, "%", percentOf(tally)),
  );
  const all = [...byKind.values()].reduce((sum, { right, asked }) => ({
    right: sum.right + right,
    asked: sum.asked + asked,
  }));
  const whole = { name: `held-out: all (${all.asked})`, unit: "%", values: percentOf(all) };
  return [...figures, limitFigure({ ...whole, comparison: ">=", limit: targetPercent })];
}
