/** Takes the tags off answers of models that mark their answer as well as their thinking. */
import { lengthOfBegunMarker } from "./text-source.ts";

export interface AnswerTags {
  readonly start: string;
  readonly end: string;
}

/**
 * Mutable. White space within the tags, next to them, is left out. A text that does not begin with the start tag stays as
 * it is. The text does not depend on how it is divided.
 */
export class AnswerUnwrapper {
  readonly #tags: AnswerTags;
  #place: "before" | "at start" | "inside" | "behind" | "after" = "before";
  /** Text that may belong to a tag or be white space to leave out. */
  #held = "";

  constructor(tags: AnswerTags) {
    this.#tags = tags;
  }

  append(text: string): string {
    this.#held += text;
    return this.#take(false);
  }

  /** The text is complete. */
  finish(): string {
    return this.#take(true);
  }

  #take(isComplete: boolean): string {
    if (this.#place === "before") this.#look(isComplete);
    if (this.#place === "at start") {
      this.#held = this.#held.trimStart();
      if (this.#held !== "") this.#place = "inside";
    }
    let answer = this.#place === "inside" ? this.#takeAnswer(isComplete) : "";
    if (this.#place === "behind") {
      this.#held = this.#held.trimStart();
      if (this.#held !== "") this.#place = "after";
    }
    if (this.#place === "after") {
      answer += this.#held;
      this.#held = "";
    }
    return answer;
  }

  #look(isComplete: boolean): void {
    const { start } = this.#tags;
    const text = this.#held.trimStart();
    if (text.startsWith(start)) {
      this.#held = text.slice(start.length);
      this.#place = "at start";
    } else if (isComplete || !start.startsWith(text)) {
      this.#place = "after";
    }
  }

  #takeAnswer(isComplete: boolean): string {
    const { end } = this.#tags;
    const index = this.#held.indexOf(end);
    if (index !== -1) {
      const answer = this.#held.slice(0, index).trimEnd();
      this.#held = this.#held.slice(index + end.length);
      this.#place = "behind";
      return answer;
    }
    const numHeld = isComplete ? 0 : lengthOfBegunMarker(this.#held, [end]);
    const settled = this.#held.slice(0, this.#held.length - numHeld);
    const answer = isComplete ? settled : settled.trimEnd();
    this.#held = this.#held.slice(answer.length);
    return answer;
  }
}
