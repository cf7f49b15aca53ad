/** Text that arrives in pieces, for parsers that are generators: they yield where they need more of it. */
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
  #events: OutputEvent[] = [];

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
      source.text += text;
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
  return source.text.charAt(source.position);
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

/** A marker in the text, which is read, and the white space before it, which is not emitted. */
export interface FoundMarker {
  readonly marker: string;
  readonly space: string;
}

/** Emits the text before the next of the markers. Returns null at the end of the text. */
export function* emitUntil(source: TextSource, markers: readonly string[]): Reading<FoundMarker | null> {
  while (true) {
    const { text, position } = source;
    const found = firstOf(text, position, markers);
    if (found !== null) {
      const before = text.slice(position, found.index);
      const kept = before.trimEnd();
      source.emitText(kept);
      source.position = found.index + found.marker.length;
      source.forget();
      return { marker: found.marker, space: before.slice(kept.length) };
    }
    const pending = text.slice(position);
    if (source.isComplete) {
      source.emitText(pending);
      source.position = text.length;
      return null;
    }
    const settled = pending.slice(0, pending.length - lengthOfBegunMarker(pending, markers)).trimEnd();
    source.emitText(settled);
    source.position += settled.length;
    source.forget();
    yield;
  }
}

function firstOf(text: string, from: number, markers: readonly string[]): { marker: string; index: number } | null {
  let first: { marker: string; index: number } | null = null;
  for (const marker of markers) {
    const index = text.indexOf(marker, from);
    if (index !== -1 && (first === null || index < first.index)) first = { marker, index };
  }
  return first;
}

/** Length of the longest end of the text that one of the markers starts with. */
export function lengthOfBegunMarker(text: string, markers: readonly string[]): number {
  const longest = markers.reduce((length, marker) => Math.max(length, marker.length - 1), 0);
  for (let length = Math.min(longest, text.length); length > 0; length--) {
    const end = text.slice(text.length - length);
    if (markers.some((marker) => marker.startsWith(end))) return length;
  }
  return 0;
}
