/** Validates the whole input of a batch before its first line is answered, as OpenAI does. */
import { duplicateOf, parseBatchLine } from "./batch-line.ts";
import type { BadBatchLine, BatchUrl, ParsedLine } from "./batch-line.ts";
import type { BatchError } from "./batch-record.ts";
import type { NumberedLine } from "./numbered-lines.ts";

/** For a file that is no input at all, the first lines are enough. */
const MAX_ERRORS = 100;

export interface InputRules {
  readonly endpoint: BatchUrl;
  readonly maxNumLines: number;
}

export interface CheckedInput {
  readonly numLines: number;
  /** In the order of the lines. With any error, no line is answered. */
  readonly errors: readonly BatchError[];
}

export async function checkInput(
  lines: AsyncIterable<NumberedLine>,
  { endpoint, maxNumLines }: InputRules,
): Promise<CheckedInput> {
  const errors: BatchError[] = [];
  /** By custom_id. */
  const lineNumbers = new Map<string, number>();
  let numLines = 0;
  for await (const numbered of lines) {
    numLines += 1;
    if (numLines > maxNumLines) {
      const message = `The file has more than ${maxNumLines} requests; BATCH_MAX_LINES sets the limit.`;
      return { numLines, errors: [{ code: "too_many_lines", message, line: null, param: null }] };
    }
    const bad = problemOf(parseBatchLine(numbered), endpoint, lineNumbers);
    if (bad !== null) errors.push({ code: bad.code, message: bad.message, line: bad.lineNumber, param: bad.parameter });
    if (errors.length >= MAX_ERRORS) break;
  }
  if (numLines === 0) {
    errors.push({ code: "empty_file", message: "The file contains no request.", line: null, param: null });
  }
  return { numLines, errors };
}

/** Stores the line's id if the line is valid. */
function problemOf(line: ParsedLine, endpoint: BatchUrl, lineNumbers: Map<string, number>): BadBatchLine | null {
  if (line.kind === "bad") return line;
  const { lineNumber, customId, url } = line;
  if (url !== endpoint) {
    const message = `Line ${lineNumber}: url is ${url}; the endpoint of the batch is ${endpoint}.`;
    return { lineNumber, customId, code: "invalid_value", message, parameter: "url" };
  }
  const firstLineNumber = lineNumbers.get(customId);
  if (firstLineNumber !== undefined) return duplicateOf(line, firstLineNumber);
  lineNumbers.set(customId, lineNumber);
  return null;
}
