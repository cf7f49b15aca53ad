/** Takes the tags off answers of models that mark their answer as well as their thinking. */
import { LeadingMarkerSearch, MarkerSearch } from "./marker-search.ts";

export interface AnswerTags {
  readonly start: string;
  readonly end: string;
}

/**
 * Mutable. White space within the tags, next to them, is left out. A text that does not begin with the start tag stays as
 * it is. The text does not depend on how it is divided.
 */
export class AnswerUnwrapper {
  readonly #start: LeadingMarkerSearch;
  readonly #end: MarkerSearch;
  #place: "before" | "at start" | "inside" | "behind" | "after" = "before";
  /** Text that has arrived and that no place has taken yet. */
  #held = "";

  constructor(tags: AnswerTags) {
    this.#start = new LeadingMarkerSearch(tags.start);
    this.#end = new MarkerSearch([tags.end]);
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
    const found = this.#start.append(this.#held, isComplete);
    this.#held = found?.text ?? "";
    if (found !== null) this.#place = found.isMarked ? "at start" : "after";
  }

  #takeAnswer(isComplete: boolean): string {
    const { settled, found } = this.#end.append(this.#held);
    this.#held = found?.rest ?? "";
    if (found !== null) this.#place = "behind";
    else if (isComplete) return settled + this.#end.finish();
    return settled;
  }
}
