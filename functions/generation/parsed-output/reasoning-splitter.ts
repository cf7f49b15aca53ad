/** Splits a text into the thinking at its start and the answer. */
import type { ReasoningMarkers, ReasoningStart } from "../../../engine/index.ts";
import { LeadingMarkerSearch, MarkerSearch } from "./marker-search.ts";

export interface SplitText {
  readonly reasoning: string;
  readonly content: string;
}

export type AnswerPhase = "unknown" | "thinking" | "answer";

/**
 * Mutable. White space around the thinking, and before the answer that follows it, is left out. The parts do not depend
 * on how the text is divided.
 */
export class ReasoningSplitter {
  readonly #start: LeadingMarkerSearch;
  readonly #repeatedStart: LeadingMarkerSearch;
  readonly #end: MarkerSearch;
  #place: "before" | "at start of thinking" | "after its marker" | "inside" | "at start of answer" | "after";
  /** Text that has arrived and that no place has taken yet. */
  #held = "";

  constructor(markers: ReasoningMarkers, start: ReasoningStart) {
    this.#start = new LeadingMarkerSearch(markers.start);
    this.#repeatedStart = new LeadingMarkerSearch(markers.start);
    this.#end = new MarkerSearch([markers.end]);
    if (start === "inside") this.#place = "at start of thinking";
    else this.#place = start === "continued" ? "inside" : start;
  }

  /**
   * Where the text so far ends: `thinking` includes the markers and the white space behind them. `unknown`: it may still
   * become a start marker.
   */
  get phase(): AnswerPhase {
    if (this.#place === "before") return "unknown";
    return this.#place === "after" ? "answer" : "thinking";
  }

  append(text: string): SplitText {
    this.#held += text;
    return this.#split(false);
  }

  /** The text is complete. */
  finish(): SplitText {
    return this.#split(true);
  }

  #split(isComplete: boolean): SplitText {
    if (this.#place === "before") this.#look(isComplete);
    let reasoning = "";
    if (this.#place === "at start of thinking") this.#startThinking(isComplete);
    if (this.#place === "after its marker") {
      this.#held = this.#held.trimStart();
      if (this.#held !== "") this.#place = "inside";
    }
    if (this.#place === "inside") reasoning = this.#takeThinking(isComplete);
    let content = "";
    if (this.#place === "at start of answer") {
      this.#held = this.#held.trimStart();
      if (this.#held !== "") this.#place = "after";
    }
    if (this.#place === "after") {
      content = this.#held;
      this.#held = "";
    }
    return { reasoning, content };
  }

  /** A text that does not start with the marker is an answer. */
  #look(isComplete: boolean): void {
    const found = this.#start.append(this.#held, isComplete);
    this.#held = found?.text ?? "";
    if (found !== null) this.#place = found.isMarked ? "at start of thinking" : "after";
  }

  /** Some models repeat the marker that the prompt ended with, once. */
  #startThinking(isComplete: boolean): void {
    const found = this.#repeatedStart.append(this.#held, isComplete);
    this.#held = found?.text ?? "";
    if (found !== null) this.#place = "after its marker";
  }

  #takeThinking(isComplete: boolean): string {
    const { settled, found } = this.#end.append(this.#held);
    this.#held = found?.rest ?? "";
    if (found !== null) this.#place = "at start of answer";
    else if (isComplete) return settled + this.#end.finish().trimEnd();
    return settled;
  }
}
