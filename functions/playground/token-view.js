/**
 * The tokens of an answer, coloured by uncertainty, and the card with each token's alternatives. An answer is one stop
 * of the tab key; arrow keys move between tokens.
 */
import { create } from "./elements.js";

/** @import { TokenLogprob, TokenSpan } from "./token-spans.js" */

/** Pixels between a token and its card, and between the card and the edge of the window. */
const GAP = 8;

/**
 * @param {HTMLElement} container
 * @param {readonly TokenSpan[]} spans
 */
export function appendSpans(container, spans) {
  for (const { text, tokens } of spans) {
    if (tokens.length === 0) {
      container.append(text);
      continue;
    }
    const isFirst = container.querySelector(".token") === null;
    const element = create("span", { className: "token", textContent: text, tabIndex: isFirst ? 0 : -1 });
    const probability = Math.exp(tokens.reduce((sum, { logprob }) => sum + logprob, 0));
    element.style.setProperty("--doubt", (1 - probability).toFixed(3));
    element.setAttribute("aria-describedby", "token-card");
    spanOf.set(element, { text, tokens });
    container.append(element);
  }
}

/** @type {WeakMap<Element, TokenSpan>} */
const spanOf = new WeakMap();

/**
 * Shows a token's card while the pointer or the focus is on it.
 *
 * @param {HTMLElement} card
 */
export function showCards(card) {
  const hide = () => {
    card.hidden = true;
  };
  /** @param {Event} event */
  const show = ({ target }) => {
    if (!(target instanceof HTMLElement)) return;
    const span = spanOf.get(target);
    if (span === undefined) return;
    card.replaceChildren(...describe(span));
    card.hidden = false;
    place(card, target.getClientRects()[0] ?? target.getBoundingClientRect());
  };
  document.addEventListener("pointerover", show);
  document.addEventListener("focusin", show);
  document.addEventListener("pointerout", hide);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    moveFocus(event);
  });
}

/** @param {KeyboardEvent} event */
function moveFocus(event) {
  const { key, target } = event;
  if (!(target instanceof HTMLElement) || !spanOf.has(target)) return;
  if (key !== "ArrowLeft" && key !== "ArrowRight") return;
  const next = key === "ArrowRight" ? target.nextElementSibling : target.previousElementSibling;
  if (!(next instanceof HTMLElement)) return;
  event.preventDefault();
  target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/**
 * A list of alternatives for each token, the one that was taken marked.
 *
 * @param {TokenSpan} span
 */
function describe({ tokens }) {
  return tokens.map((taken) => {
    const isAmong = taken.top_logprobs.some((other) => isSame(other, taken));
    const shown = isAmong ? taken.top_logprobs : [...taken.top_logprobs, taken];
    const rows = shown.map((alternative) => {
      const probability = Math.exp(alternative.logprob);
      const bar = create("span", { className: "token-bar" });
      bar.style.setProperty("--probability", probability.toFixed(4));
      return create("li", { className: isSame(alternative, taken) ? "taken" : "" }, [
        create("code", { textContent: toVisible(alternative.token) }),
        bar,
        create("span", { className: "token-percent", textContent: formatPercent(probability) }),
      ]);
    });
    return create("ol", {}, rows);
  });
}

/**
 * @param {TokenLogprob} first
 * @param {TokenLogprob} second
 */
function isSame(first, second) {
  return first.token === second.token && first.logprob === second.logprob;
}

/** @param {string} token */
function toVisible(token) {
  return token.replaceAll(" ", "␣").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}

/** @param {number} probability */
function formatPercent(probability) {
  const percent = probability * 100;
  if (percent >= 99.95) return "100 %";
  return percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(1)} %`;
}

/**
 * Places the card below the token, or above it if there is no room, within the window.
 *
 * @param {HTMLElement} card
 * @param {DOMRect} around
 */
function place(card, around) {
  const { width, height } = card.getBoundingClientRect();
  const left = Math.max(GAP, Math.min(around.left, document.documentElement.clientWidth - width - GAP));
  const below = around.bottom + GAP;
  const top = below + height + GAP > window.innerHeight ? around.top - height - GAP : below;
  card.style.setProperty("left", `${left}px`);
  card.style.setProperty("top", `${Math.max(GAP, top)}px`);
}
