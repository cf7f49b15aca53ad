/** One question and its answer on the page. */
import { create, find, fromTemplate } from "./elements.js";
import { createPreview } from "./preview.js";
import { appendSpans } from "./token-view.js";
import { isAnswered } from "./turn-tree.js";

/** @import { Figures } from "./answer.js" */
/** @import { ServerError } from "./server-client.js" */
/** @import { TokenSpan } from "./token-spans.js" */
/** @import { Turn } from "./turn-tree.js" */

/** @typedef {ReturnType<typeof createTurnView>} TurnView */

/** @type {Readonly<Record<string, string>>} */
const endings = { length: "cut off at the token limit", stopped: "stopped" };

/** The names of the buttons for screen readers, which may list them without the turns that they belong to. */
const actions = /** @type {const} */ ({
  previous: "Previous version of turn",
  next: "Next version of turn",
  regenerate: "Regenerate answer",
  edit: "Edit question",
  remove: "Delete turn",
  code: "Code of request",
});

/** @typedef {keyof typeof actions} TurnAction */

/**
 * Where a turn stands among the others.
 *
 * @typedef {object} TurnPlace
 * @property {number} number  From 1, here and below.
 * @property {number} version
 * @property {number} numVersions
 * @property {boolean} isLocked  An answer is streaming, so no turn can be changed.
 */

/**
 * A turn that has ended is shown with its answer.
 *
 * @param {Turn} turn
 * @param {Readonly<Record<"grow" | TurnAction, () => void>>} on
 */
export function createTurnView(turn, on) {
  const element = fromTemplate("turn-template", HTMLElement);
  const answer = find(element, ".answer", HTMLElement);
  const thinking = find(answer, ".thinking", HTMLDetailsElement);
  const thinkingText = find(thinking, ".thinking-text", HTMLElement);
  const text = find(answer, ".answer-text", HTMLElement);
  const failure = find(answer, ".failure", HTMLElement);
  const figures = find(answer, ".figures", HTMLElement);
  const versions = find(figures, ".versions", HTMLElement);
  const buttons = [...element.querySelectorAll("button")];

  find(element, ".question-text", HTMLElement).textContent = turn.question.question;
  find(element, ".question-pictures", HTMLElement).append(
    ...turn.question.pictures.map((picture) => create("li", {}, [createPreview(picture, { hasControls: true })])),
  );
  for (const button of buttons) {
    const action = /** @type {TurnAction} */ (button.dataset.action);
    button.addEventListener("click", () => on[action]());
  }
  /** @type {TokenSpan[]} */
  let unshown = [];
  let unshownThinking = "";

  /** Tokens may come faster than frames; the page is laid out once for all those of a frame. */
  function showLater() {
    if (unshown.length === 0 && unshownThinking === "") requestAnimationFrame(showUnshown);
  }

  function showUnshown() {
    if (unshown.length === 0 && unshownThinking === "") return;
    if (unshownThinking !== "") {
      thinking.hidden = false;
      thinkingText.append(unshownThinking);
    }
    appendSpans(text, unshown);
    unshown = [];
    unshownThinking = "";
    on.grow();
  }

  /** @param {Pick<ServerError, "message" | "param" | "status">} error */
  function showFailure({ message, param, status }) {
    answer.removeAttribute("aria-busy");
    failure.hidden = false;
    figures.hidden = false;
    figures.classList.add("failed");
    find(failure, ".failure-message", HTMLElement).textContent = message;
    const details = [status === 0 ? "" : `status ${status}`, param === null ? "" : `about ${param}`];
    find(failure, ".failure-detail", HTMLElement).textContent = details.filter((detail) => detail !== "").join(", ");
  }

  /**
   * @param {Figures | null} measured
   * @param {string | null} ending
   */
  function showFigures(measured, ending) {
    answer.removeAttribute("aria-busy");
    figures.hidden = false;
    const shown = [...(measured === null ? [] : describeFigures(measured)), endings[ending ?? ""] ?? ""];
    find(figures, ".figure-list", HTMLElement).replaceChildren(
      ...shown.filter((words) => words !== "").map((words) => create("li", { textContent: words })),
    );
  }

  /** @param {TurnAction[]} names  Focuses the first of them that can be used. */
  function focusAction(...names) {
    const found = names.map((name) => find(figures, `[data-action=${name}]`, HTMLButtonElement));
    found.find(({ disabled }) => !disabled)?.focus();
  }

  if (isAnswered(turn)) {
    text.textContent = turn.answer;
    showFigures(null, turn.ending);
  } else {
    // Not an alert: it is no news.
    failure.removeAttribute("role");
    showFailure({ message: "This question has no answer.", param: null, status: 0 });
  }

  return {
    element,

    /** @param {TurnPlace} place */
    place({ number, version, numVersions, isLocked }) {
      element.setAttribute("aria-label", `Turn ${number}`);
      versions.hidden = numVersions === 1;
      versions.setAttribute("aria-label", `Version ${version} of ${numVersions}`);
      find(versions, ".version", HTMLElement).textContent = `${version}/${numVersions}`;
      for (const button of buttons) {
        const action = /** @type {TurnAction} */ (button.dataset.action);
        if (figures.contains(button)) button.setAttribute("aria-label", `${actions[action]} ${number}`);
        const isAtEnd = action === "previous" ? version === 1 : action === "next" && version === numVersions;
        button.disabled = action !== "code" && (isLocked || isAtEnd);
      }
    },

    focusAction,

    start() {
      text.replaceChildren();
      thinkingText.replaceChildren();
      thinking.hidden = true;
      failure.hidden = true;
      figures.hidden = true;
      figures.classList.remove("failed");
      answer.setAttribute("aria-busy", "true");
    },

    /** @param {readonly TokenSpan[]} spans */
    append(spans) {
      if (spans.length === 0) return;
      showLater();
      unshown.push(...spans);
    },

    /**
     * Shown with the turn and not kept: it is no part of the answer.
     *
     * @param {string} piece
     */
    appendThinking(piece) {
      if (piece === "") return;
      showLater();
      unshownThinking += piece;
    },

    /**
     * @param {Figures | null} measured
     * @param {string | null} ending  Why the answer ended.
     */
    finish(measured, ending) {
      showUnshown();
      showFigures(measured, ending);
    },

    /** @param {ServerError} error */
    fail(error) {
      showUnshown();
      failure.setAttribute("role", "alert");
      showFailure(error);
    },
  };
}

/**
 * @param {Figures} figures
 * @returns {string[]}
 */
function describeFigures(figures) {
  const { outputTokens, promptTokens, imageTokens, videoTokens, cachedTokens } = figures;
  const { timeToFirstTokenMs, timeToLastTokenMs, tokensPerSecond } = figures;
  const tokens = outputTokens === 1 ? "1 token" : `${outputTokens} tokens`;
  const parts = [
    imageTokens > 0 ? `${imageTokens} from pictures` : "",
    videoTokens > 0 ? `${videoTokens} from videos` : "",
    cachedTokens > 0 ? `${cachedTokens} reused` : "",
  ].filter((part) => part !== "");
  return [
    timeToLastTokenMs === null ? tokens : `${tokens} in ${formatMilliseconds(timeToLastTokenMs)}`,
    timeToFirstTokenMs === null ? "" : `first token after ${formatMilliseconds(timeToFirstTokenMs)}`,
    tokensPerSecond === null ? "" : `${formatRate(tokensPerSecond)} tokens/s`,
    `prompt ${promptTokens}${parts.length === 0 ? "" : ` (${parts.join(", ")})`}`,
  ];
}

/** @param {number} milliseconds */
function formatMilliseconds(milliseconds) {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(2)} s`;
}

/** @param {number} rate */
function formatRate(rate) {
  return rate < 10 ? rate.toFixed(1) : String(Math.round(rate));
}
