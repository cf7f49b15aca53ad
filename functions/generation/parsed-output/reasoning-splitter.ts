/** Splits a text into the thinking at its start and the answer. */
import type { ReasoningMarkers, ReasoningStart } from "../../../engine/index.ts";
import { lengthOfBegunMarker } from "./text-source.ts";

export interface SplitText {
  readonly reasoning: string;
  readonly content: string;
}

/**
 * Mutable. White space around the thinking, and before the answer that follows it, is left out. The parts do not depend
 * on how the text is divided.
 */
export class ReasoningSplitter {
  readonly #markers: ReasoningMarkers;
  #place: "before" | "at start of thinking" | "after its marker" | "inside" | "at start of answer" | "after";
  /** Text that may belong to a marker or be white space to leave out. */
  #held = "";

  constructor(markers: ReasoningMarkers, start: ReasoningStart) {
    this.#markers = markers;
    if (start === "inside") this.#place = "at start of thinking";
    else this.#place = start === "continued" ? "inside" : start;
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
    const { start } = this.#markers;
    const text = this.#held.trimStart();
    if (text.startsWith(start)) {
      this.#held = text.slice(start.length);
      this.#place = "at start of thinking";
    } else if (isComplete || !start.startsWith(text)) {
      this.#place = "after";
    }
  }

  /** Some models repeat the marker that the prompt ended with, once. */
  #startThinking(isComplete: boolean): void {
    const { start } = this.#markers;
    const text = this.#held.trimStart();
    if (!text.startsWith(start) && !isComplete && start.startsWith(text)) return;
    this.#held = text.startsWith(start) ? text.slice(start.length) : text;
    this.#place = "after its marker";
  }

  #takeThinking(isComplete: boolean): string {
    const { end } = this.#markers;
    const index = this.#held.indexOf(end);
    if (index !== -1) {
      const thinking = this.#held.slice(0, index).trimEnd();
      this.#held = this.#held.slice(index + end.length);
      this.#place = "at start of answer";
      return thinking;
    }
    const numHeld = isComplete ? 0 : lengthOfBegunMarker(this.#held, [end]);
    const thinking = this.#held.slice(0, this.#held.length - numHeld).trimEnd();
    this.#held = this.#held.slice(thinking.length);
    return thinking;
  }
}
