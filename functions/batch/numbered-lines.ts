/** Splits a stream of bytes into lines, each of bounded length. */

const TAB = 9;
const NEWLINE = 10;
const CARRIAGE_RETURN = 13;
const SPACE = 32;
const byteOrderMark = "\uFEFF";

export interface NumberedLine {
  /** From 1; lines of nothing but white space are counted but skipped. */
  readonly lineNumber: number;
  /** Without its line end; "" if there is a problem. */
  readonly text: string;
  /** Why the line cannot be read. */
  readonly problem: { readonly code: "line_too_long" | "invalid_json"; readonly message: string } | null;
}

/** Never holds more than `maxLineBytes` and one chunk: the rest of a longer line is skipped. */
export async function* readLines(
  chunks: AsyncIterable<Uint8Array>,
  maxLineBytes: number,
): AsyncGenerator<NumberedLine> {
  let pieces: Uint8Array[] = [];
  let numBytes = 0;
  let lineNumber = 0;
  const add = (piece: Uint8Array): void => {
    numBytes += piece.byteLength;
    if (numBytes <= maxLineBytes) pieces.push(piece);
    else pieces = [];
  };
  const takeLine = (): NumberedLine | null => {
    lineNumber += 1;
    const line = numBytes > maxLineBytes ? tooLong(lineNumber, numBytes, maxLineBytes) : decode(lineNumber, pieces);
    pieces = [];
    numBytes = 0;
    return line;
  };
  for await (const chunk of chunks) {
    let start = 0;
    while (true) {
      if (numBytes === 0) {
        const blank = skipBlankLines(chunk, start);
        lineNumber += blank.numLines;
        start = blank.end;
      }
      const end = chunk.indexOf(NEWLINE, start);
      if (end === -1) break;
      add(chunk.subarray(start, end));
      start = end + 1;
      const line = takeLine();
      if (line !== null) yield line;
    }
    // Copied, so that a line does not keep the whole chunk in which it began in memory.
    add(Uint8Array.from(chunk.subarray(start)));
  }
  const line = takeLine();
  if (line !== null) yield line;
}

/** Their number may be that of the file's bytes, so they are not decoded. `end` is the beginning of the next line. */
function skipBlankLines(chunk: Uint8Array, start: number): { readonly numLines: number; readonly end: number } {
  let numLines = 0;
  let end = start;
  for (let at = start; at < chunk.byteLength; at++) {
    const byte = chunk[at]!;
    if (byte === NEWLINE) {
      numLines += 1;
      end = at + 1;
    } else if (byte !== SPACE && (byte < TAB || byte > CARRIAGE_RETURN)) break;
  }
  return { numLines, end };
}

/** Null for an empty line. */
function decode(lineNumber: number, pieces: readonly Uint8Array[]): NumberedLine | null {
  try {
    const decoded = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.concat(pieces));
    const text = lineNumber === 1 && decoded.startsWith(byteOrderMark) ? decoded.slice(1) : decoded;
    return text.trim() === "" ? null : { lineNumber, text, problem: null };
  } catch {
    return { lineNumber, text: "", problem: { code: "invalid_json", message: "it is not UTF-8." } };
  }
}

function tooLong(lineNumber: number, numBytes: number, maxLineBytes: number): NumberedLine {
  const message = `it has ${numBytes} bytes; the limit is ${maxLineBytes}, which MAX_BODY_BYTES sets.`;
  return { lineNumber, text: "", problem: { code: "line_too_long", message } };
}
