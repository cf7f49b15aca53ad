/** Which pages of its documents a request asks for, and how: `media_io_kwargs.document`, with names of pdf2image. */
import { documentContents, dotsPerInchRange } from "../../engine/index.ts";
import type { DocumentPages, GenerationRequest } from "../../engine/index.ts";
import { formatPath } from "../http/wire-parameter.ts";
import { refusedOption } from "./refused-option.ts";
import type { ChatCompletionRequest } from "./schemas/chat-completion-request.ts";

const optionNames = {
  first_page: "firstPage",
  last_page: "lastPage",
  dpi: "dotsPerInch",
  content: "content",
} as const satisfies Record<string, keyof DocumentPages>;

const path = "media_io_kwargs.document";

/** @throws HttpError 400 for an unknown option, a value out of range, and pages in the wrong order. */
export function documentPagesOf({
  media_io_kwargs: media,
}: Pick<ChatCompletionRequest, "media_io_kwargs">): Pick<GenerationRequest, "documentPages"> {
  const given = media?.["document"];
  if (given === null || given === undefined) return {};
  if (typeof given !== "object" || Array.isArray(given)) throw refusedOption(path, `${path} must be an object`);
  const entries = Object.entries(given)
    .filter(([, value]: [string, unknown]) => value !== null && value !== undefined)
    .map(([name, value]: [string, unknown]) => readOption(name, value));
  const pages: DocumentPages = Object.fromEntries(entries);
  const { firstPage = 1, lastPage = firstPage } = pages;
  if (lastPage >= firstPage) return { documentPages: pages };
  throw refusedOption(
    `${path}.last_page`,
    `${path}.last_page is ${lastPage}; expected at least first_page, ${firstPage}`,
  );
}

function readOption(name: string, value: unknown): [keyof DocumentPages, unknown] {
  const option = `${path}.${formatPath([name])}`;
  if (!Object.hasOwn(optionNames, name)) {
    const known = Object.keys(optionNames).join(", ");
    throw refusedOption(option, `${option} cannot be set; the options of documents that can be set are ${known}`);
  }
  const known = name as keyof typeof optionNames;
  const { expected, isAllowed } = rules[known];
  if (isAllowed(value)) return [optionNames[known], value];
  throw refusedOption(option, `${option} must be ${expected}`);
}

interface Rule {
  readonly expected: string;
  readonly isAllowed: (value: unknown) => boolean;
}

const page: Rule = {
  expected: "a whole number of at least 1",
  isAllowed: (value) => Number.isSafeInteger(value) && Number(value) >= 1,
};
const { min, max } = dotsPerInchRange;
const rules: Readonly<Record<keyof typeof optionNames, Rule>> = {
  first_page: page,
  last_page: page,
  dpi: {
    expected: `a number from ${min} to ${max}`,
    isAllowed: (value) => typeof value === "number" && value >= min && value <= max,
  },
  content: {
    expected: `one of ${documentContents.join(", ")}`,
    isAllowed: (value) => documentContents.some((content) => content === value),
  },
};
