/** Builds the page's parts and connects them: the server, the composer, the conversation, the settings. */
import { createApiKey } from "./api-key.js";
import { createCodeDialog } from "./code-dialog.js";
import { Conversation } from "./conversation.js";
import { find } from "./elements.js";
import { createQuestionButton, showExamples } from "./examples.js";
import { createPictureTray, receiveFiles } from "./picture-tray.js";
import { createServerClient, ServerError } from "./server-client.js";
import { showState, waitUntilReady } from "./service-watch.js";
import { createSettingsPanel } from "./settings-panel.js";
import { showCards } from "./token-view.js";

/** @import { Question } from "./chat-request.js" */
/** @import { ServiceFacts } from "./server-client.js" */

/** After a server that said it was ready did not answer. */
const RETRY_MS = 2000;

/** As near to the end of the page as counts as being there. */
const END_PIXELS = 40;

const state = find(document, "#state", HTMLElement);
const model = find(document, "#model", HTMLSelectElement);
const welcome = find(document, "#welcome", HTMLElement);
const composer = find(document, "#composer", HTMLFormElement);
const question = find(document, "#question", HTMLTextAreaElement);
const send = find(document, "#send", HTMLButtonElement);
const stop = find(document, "#stop", HTMLButtonElement);
const suggestions = find(document, "#suggestions", HTMLElement);
const pictureFiles = find(document, "#picture-files", HTMLInputElement);
const newConversation = find(document, "#new-conversation", HTMLButtonElement);

const key = createApiKey(() => void connect());
const client = createServerClient({ baseUrl: new URL("..", import.meta.url), readKey: key.read });
const settings = createSettingsPanel();
const codeDialog = createCodeDialog(() => ({ baseUrl: client.baseUrl, needsKey: key.read() !== null }));
const tray = createPictureTray({
  list: find(document, "#tray", HTMLElement),
  onProblem: showProblem,
  onRemove: () => question.focus(),
});
const conversation = new Conversation({
  client,
  list: find(document, "#conversation", HTMLElement),
  on: {
    change: render,
    grow: keepEndInView,
    answered(text) {
      find(document, "#announcer", HTMLElement).textContent = `Answer: ${text}`;
    },
    failed(error) {
      if (error.param !== null) settings.showError(error.param, error.message);
      if (error.status === 401) key.ask(error.message);
      if (error.status === 0 || error.status === 503) void connect();
    },
    retry() {
      const decoding = tryReadDecoding();
      if (decoding !== null) void conversation.retry(decoding);
    },
    edit({ question: text, pictures }) {
      question.value = text;
      tray.clear();
      pictures.forEach(tray.add);
      question.focus();
    },
    code: (request) => codeDialog.show(request),
  },
});
let isReady = false;
/** @type {ServiceFacts | null} */
let facts = null;
/** @type {readonly string[]} */
let suggested = [];
/** Until the reader scrolls back. */
let followsEnd = true;

/** Follows the server until it serves; then takes from it what the page shows. */
async function connect() {
  isReady = false;
  render();
  await waitUntilReady(client, (current) => showState(state, current));
  try {
    const [names, processors] = await Promise.all([client.models(), client.logitsProcessors()]);
    facts = await client.facts();
    settings.showService(facts, processors);
    showModels(names);
    showAbilities(facts);
    key.accept();
    isReady = true;
    showState(state, "ready");
    showProblem("");
  } catch (error) {
    if (error instanceof ServerError && error.status === 401) {
      showState(state, "locked");
      key.ask(error.message);
    } else {
      showState(state, "unreachable");
      setTimeout(() => void connect(), RETRY_MS);
    }
  }
  render();
}

/** @param {ServiceFacts} facts */
function showAbilities({ accepts_images: acceptsImages, examples }) {
  find(document, "#welcome-title", HTMLElement).textContent = acceptsImages ? "Ask about a picture" : "Ask something";
  question.placeholder = acceptsImages ? "Ask about a picture…" : "Ask something…";
  for (const selector of ["#welcome-text", "#samples", "#choose-pictures"]) {
    find(document, selector, HTMLElement).hidden = !acceptsImages;
  }
  const list = find(document, "#samples", HTMLElement);
  showExamples({ examples, list, onAsk: (asked, more) => void ask(asked, more) });
}

/** @param {readonly string[]} names */
function showModels(names) {
  const chosen = model.value;
  model.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

/**
 * @param {Question} asked
 * @param {readonly string[]} [moreQuestions]  To be suggested after it.
 */
async function ask(asked, moreQuestions = suggested) {
  const decoding = tryReadDecoding();
  if (decoding === null || conversation.isStreaming) return;
  if (!isReady) return showProblem(`${state.textContent}. The question can be asked as soon as the server is ready.`);
  const numBytes = JSON.stringify(conversation.toRequest(asked, decoding)).length;
  if (facts !== null && numBytes > facts.max_body_bytes) {
    showProblem(`With its pictures the request has ${numBytes} bytes; the server takes ${facts.max_body_bytes}.`);
    return;
  }
  showProblem("");
  suggested = moreQuestions.filter((other) => other !== asked.question);
  question.value = "";
  tray.clear();
  resizeQuestion();
  followsEnd = true;
  const over = conversation.ask(asked, decoding);
  // The button that asked may be gone; on a touch screen the focus would bring up the keyboard.
  if (document.activeElement === document.body && matchMedia("(pointer: fine)").matches) question.focus();
  await over;
}

function tryReadDecoding() {
  const read = settings.tryRead();
  return read === null ? null : { model: model.value, ...read };
}

/** What is in the composer. */
function readQuestion() {
  return { question: question.value.trim(), pictures: tray.pictures };
}

/** @param {string} message */
function showProblem(message) {
  find(document, "#composer-problem", HTMLElement).textContent = message;
}

/** Brings buttons, welcome and suggestions in line with the conversation. */
function render() {
  const { isStreaming, isEmpty } = conversation;
  welcome.hidden = !isEmpty;
  send.hidden = isStreaming;
  send.disabled = !isReady;
  stop.hidden = !isStreaming;
  newConversation.disabled = isEmpty;
  const shown = isStreaming || isEmpty ? [] : suggested;
  suggestions.replaceChildren(
    ...shown.map((text) => createQuestionButton(text, () => void ask({ question: text, pictures: [] }))),
  );
  keepEndInView();
}

function keepEndInView() {
  if (followsEnd && !conversation.isEmpty) window.scrollTo(0, document.documentElement.scrollHeight);
}

function resizeQuestion() {
  question.style.setProperty("height", "auto");
  question.style.setProperty("height", `${question.scrollHeight}px`);
}

composer.addEventListener("submit", (event) => {
  event.preventDefault();
  const asked = readQuestion();
  if (asked.question === "" && asked.pictures.length === 0) return question.focus();
  void ask(asked);
});
question.addEventListener("keydown", (event) => {
  // Enter also ends the composing of a character.
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  composer.requestSubmit();
});
question.addEventListener("input", resizeQuestion);
document.addEventListener(
  "scroll",
  () => {
    followsEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - END_PIXELS;
  },
  { passive: true },
);
stop.addEventListener("click", () => {
  conversation.stop();
  question.focus();
});
newConversation.addEventListener("click", () => {
  conversation.clear();
  suggested = [];
  showProblem("");
  render();
  question.focus();
});
find(document, "#choose-pictures", HTMLButtonElement).addEventListener("click", () => pictureFiles.click());
pictureFiles.addEventListener("change", () => {
  void tray.addFiles(pictureFiles.files ?? []);
  // So that the same file can be chosen again.
  pictureFiles.value = "";
  question.focus();
});
find(document, "#show-code", HTMLButtonElement).addEventListener("click", () => {
  const decoding = tryReadDecoding();
  if (decoding !== null) codeDialog.show(conversation.toRequest(readQuestion(), decoding));
});
receiveFiles(find(document, "#drop-veil", HTMLElement), (files) => {
  void tray.addFiles(files);
  question.focus();
});
showCards(find(document, "#token-card", HTMLElement));
await connect();
