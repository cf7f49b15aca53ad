/** Text that arrives in pieces, for parsers that are generators: they yield where they need more of it. */
import { MarkerSearch } from "./marker-search.ts";
import type { FoundMarker } from "./marker-search.ts";
import type { OutputEvent, ToolCallParser } from "./tool-call-format.ts";

/** Yields when the source has no more text, and continues after the next piece. */
export type Reading<Result> = Generator<void, Result>;

/** Mutable. */
export class TextSource {
  /** The text that has arrived, from some place at or before `position`. */
  text = "";
  /** Position of the next character. A parser may set it back to a place that it has seen since the last `forget`. */
  position = 0;
  /** Whether no more text will arrive. */
  isComplete = false;
  /** The last piece and its position. Reading `text` copies it if a piece was added to it. */
  #lastPiece = "";
  #lastPosition = 0;
  #events: OutputEvent[] = [];

  append(piece: string): void {
    this.#lastPosition = this.text.length;
    this.#lastPiece = piece;
    this.text += piece;
  }

  charAt(position: number): string {
    const index = position - this.#lastPosition;
    return index < 0 ? this.text.charAt(position) : this.#lastPiece.charAt(index);
  }

  emit(event: OutputEvent): void {
    this.#events.push(event);
  }

  emitText(text: string): void {
    if (text !== "") this.#events.push({ type: "text", text });
  }

  emitArguments(text: string): void {
    if (text !== "") this.#events.push({ type: "arguments", text });
  }

  /** Drops the text before `position`. */
  forget(): void {
    this.text = this.text.slice(this.position);
    this.#lastPosition -= this.position;
    this.position = 0;
  }

  takeEvents(): readonly OutputEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }
}

/** A parser that is a generator over the text of one choice. After its end, the rest is text. */
export function createReadingParser(read: (source: TextSource) => Reading<void>): ToolCallParser {
  const source = new TextSource();
  const reading = readThenText(source, read);
  const resume = (): readonly OutputEvent[] => {
    reading.next();
    return source.takeEvents();
  };
  return {
    append(text) {
      source.append(text);
      return resume();
    },
    finish() {
      source.isComplete = true;
      return resume();
    },
  };
}

function* readThenText(source: TextSource, read: (source: TextSource) => Reading<void>): Reading<void> {
  yield* read(source);
  while (true) {
    source.emitText(source.text.slice(source.position));
    source.position = source.text.length;
    source.forget();
    if (source.isComplete) return;
    yield;
  }
}

/** The next character, which stays unread; "" at the end of the text. */
export function* peek(source: TextSource): Reading<string> {
  while (source.position === source.text.length) {
    if (source.isComplete) return "";
    yield;
  }
  return source.charAt(source.position);
}

const blank = /\s/;

/** Reads white space. */
export function* skipSpace(source: TextSource): Reading<void> {
  for (let next = yield* peek(source); next !== "" && blank.test(next); next = yield* peek(source))
    source.position += 1;
}

/** Reads one of the words if the text continues with it. Returns null, with nothing read, if with none of them. */
export function* tryRead<Word extends string>(source: TextSource, ...words: readonly Word[]): Reading<Word | null> {
  while (true) {
    const { text, position } = source;
    const found = words.find((word) => text.startsWith(word, position));
    if (found !== undefined) {
      source.position += found.length;
      return found;
    }
    const rest = text.slice(position);
    if (source.isComplete || !words.some((word) => word.startsWith(rest))) return null;
    yield;
  }
}

/** Reads the longest text of characters that match, up to `maxLength`. */
export function* readWhile(source: TextSource, pattern: RegExp, maxLength: number): Reading<string> {
  let read = "";
  while (read.length < maxLength) {
    const next = yield* peek(source);
    if (next === "" || !pattern.test(next)) break;
    read += next;
    source.position += 1;
  }
  return read;
}

/** Emits the text before the next of the markers, which is read. Returns null at the end of the text. */
export function* emitUntil(source: TextSource, markers: readonly string[]): Reading<FoundMarker | null> {
  const search = new MarkerSearch(markers);
  while (true) {
    const { settled, found } = search.append(source.text.slice(source.position));
    source.emitText(settled);
    source.position = source.text.length - (found?.rest.length ?? 0);
    source.forget();
    if (found !== null) return found;
    if (source.isComplete) {
      source.emitText(search.finish());
      return null;
    }
    yield;
  }
}
