/** One question and its answer on the page. */
import { create, find, fromTemplate } from "./elements.js";
import { appendSpans } from "./token-view.js";

/** @import { Figures } from "./answer.js" */
/** @import { Question } from "./chat-request.js" */
/** @import { ServerError } from "./server-client.js" */
/** @import { TokenSpan } from "./token-spans.js" */

/** @typedef {ReturnType<typeof createTurnView>} TurnView */

/** @type {Readonly<Record<string, string>>} */
const endings = { length: "cut off at the token limit", stopped: "stopped" };

/**
 * @param {Question} question
 * @param {Readonly<Record<"grow" | "retry" | "edit" | "code", () => void>>} on
 */
export function createTurnView({ question, pictures }, on) {
  const element = fromTemplate("turn-template", HTMLElement);
  const answer = find(element, ".answer", HTMLElement);
  const text = find(answer, ".answer-text", HTMLElement);
  const failure = find(answer, ".failure", HTMLElement);
  const figures = find(answer, ".figures", HTMLElement);

  find(element, ".question-text", HTMLElement).textContent = question;
  find(element, ".question-pictures", HTMLElement).append(
    ...pictures.map(({ name, url }) => create("li", {}, [create("img", { src: url, alt: name })])),
  );
  for (const name of /** @type {const} */ (["retry", "edit", "code"])) {
    find(answer, `[data-action=${name}]`, HTMLButtonElement).addEventListener("click", on[name]);
  }
  /** @type {TokenSpan[]} */
  let unshown = [];

  function showSpans() {
    if (unshown.length === 0) return;
    appendSpans(text, unshown);
    unshown = [];
    on.grow();
  }

  return {
    element,

    start() {
      text.replaceChildren();
      failure.hidden = true;
      figures.hidden = true;
      answer.setAttribute("aria-busy", "true");
    },

    /**
     * Tokens may come faster than frames; the page is laid out once for all those of a frame.
     *
     * @param {readonly TokenSpan[]} spans
     */
    append(spans) {
      if (spans.length === 0) return;
      if (unshown.length === 0) requestAnimationFrame(showSpans);
      unshown.push(...spans);
    },

    /**
     * @param {Figures | null} measured
     * @param {string | null} ending  Why the answer ended.
     */
    finish(measured, ending) {
      showSpans();
      answer.removeAttribute("aria-busy");
      figures.hidden = false;
      const shown = [...(measured === null ? [] : describeFigures(measured)), endings[ending ?? ""] ?? ""];
      find(figures, ".figure-list", HTMLElement).replaceChildren(
        ...shown.filter((words) => words !== "").map((words) => create("li", { textContent: words })),
      );
    },

    /** @param {ServerError} error */
    fail({ message, param, status }) {
      showSpans();
      answer.removeAttribute("aria-busy");
      failure.hidden = false;
      find(failure, ".failure-message", HTMLElement).textContent = message;
      const details = [status === 0 ? "" : `status ${status}`, param === null ? "" : `about ${param}`];
      find(failure, ".failure-detail", HTMLElement).textContent = details.filter((detail) => detail !== "").join(", ");
    },

    /** A later question has been asked, so this turn's failure can no longer be retried. */
    settle() {
      find(failure, ".failure-actions", HTMLElement).hidden = true;
    },
  };
}

/**
 * @param {Figures} figures
 * @returns {string[]}
 */
function describeFigures(figures) {
  const { outputTokens, promptTokens, imageTokens, cachedTokens } = figures;
  const { timeToFirstTokenMs, timeToLastTokenMs, tokensPerSecond } = figures;
  const tokens = outputTokens === 1 ? "1 token" : `${outputTokens} tokens`;
  const parts = [
    imageTokens > 0 ? `${imageTokens} from pictures` : "",
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
