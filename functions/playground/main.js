/** Creates the page's parts and connects them: the server, the composer, the conversation, the settings. */
import { createApiKey } from "./api-key.js";
import { createCodeDialog } from "./code-dialog.js";
import { createComposer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { openDatabase } from "./database.js";
import { find } from "./elements.js";
import { showExamples } from "./examples.js";
import { createModelChoice } from "./model-choice.js";
import { createNotice } from "./notice.js";
import { createSavedConversations } from "./saved-conversations.js";
import { createServerClient, ServerError } from "./server-client.js";
import { showState, waitUntilReady } from "./service-watch.js";
import { createSettingsPanel } from "./settings-panel.js";
import { showCards } from "./token-view.js";

/** @import { Question } from "./chat-request.js" */
/** @import { ServiceFacts } from "./server-client.js" */
/** @import { Turn, TurnTree } from "./turn-tree.js" */

/** Delay after a server that reported ready did not answer. */
const RETRY_MS = 2000;

/** Distance from the end of the page that counts as the end. */
const END_PIXELS = 40;

const state = find(document, "#state", HTMLElement);
const newConversation = find(document, "#new-conversation", HTMLButtonElement);

const database = await openDatabase();
const key = createApiKey(() => void connect());
const client = createServerClient({ baseUrl: new URL("..", import.meta.url), readKey: key.read });
const settings = createSettingsPanel();
const codeDialog = createCodeDialog(() => ({ baseUrl: client.baseUrl, needsKey: key.read() !== null }));
const models = createModelChoice(find(document, "#model", HTMLSelectElement), (name) => {
  conversation.tree.model = name;
  void saved.save(conversation.tree);
});
const notice = createNotice(announce);
const composer = createComposer({
  ask,
  stop: () => conversation.stop(),
  cancelEdit: (turn) => conversation.focusEdit(turn),
  code(question) {
    const decoding = tryReadDecoding();
    if (decoding !== null) codeDialog.show(conversation.toRequest(question, decoding));
  },
});
const conversation = new Conversation({
  client,
  list: find(document, "#conversation", HTMLElement),
  prepare: tryPrepare,
  on: {
    change: render,
    grow: keepEndInView,
    answered: (text) => announce(`Answer: ${text}`),
    failed(error) {
      if (error.param !== null) settings.showError(error.param, error.message);
      if (error.status === 401) key.ask(error.message);
      if (error.status === 0 || error.status === 503) void connect();
    },
    edit(turn) {
      if (conversation.tryWithdraw(turn)) {
        composer.write(turn.question);
        composer.focus();
      } else {
        composer.edit(turn);
      }
    },
    asked() {
      notice.forgetUndo();
      followsEnd = true;
      // The button may be gone. On a touch screen, the focus would open the keyboard.
      if (document.activeElement === document.body && matchMedia("(pointer: fine)").matches) composer.focus();
    },
    removed: (undo) => notice.show("The turn is deleted.", () => composer.focus(), undo),
    store: (tree) => void saved.save(tree),
    code(turn, sent) {
      const decoding = sent === null ? tryReadDecoding() : null;
      const request = sent ?? (decoding && conversation.toRequest(turn.question, decoding, turn));
      if (request !== null) codeDialog.show(request);
    },
  },
});
const saved = createSavedConversations({
  database,
  conversation,
  notice,
  onOpen: open,
  focusConversation() {
    // On a touch screen, the focus in the composer would open the keyboard.
    if (matchMedia("(pointer: fine)").matches) composer.focus();
    else find(document, "#conversation", HTMLElement).focus();
  },
});
let isReady = false;
/** @type {ServiceFacts | null} */
let facts = null;
/** @type {readonly string[]} */
let suggestions = [];
/** Until the reader scrolls back. */
let followsEnd = true;

/** Polls the server until it is ready, then reads what the page shows. */
async function connect() {
  isReady = false;
  render();
  await waitUntilReady(client, (current) => showState(state, current));
  try {
    const [names, processors] = await Promise.all([client.models(), client.logitsProcessors()]);
    facts = await client.facts();
    settings.showService(facts, processors);
    models.show(names);
    showWelcome(facts);
    key.accept();
    isReady = true;
    showState(state, "ready");
    composer.showProblem("");
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
function showWelcome({ accepts_images: acceptsImages, examples }) {
  const list = find(document, "#samples", HTMLElement);
  find(document, "#welcome-title", HTMLElement).textContent = acceptsImages ? "Ask about a picture" : "Ask something";
  find(document, "#welcome-text", HTMLElement).hidden = !acceptsImages;
  list.hidden = !acceptsImages;
  showExamples({ examples, list, onAsk: (question, moreQuestions) => ask(question, null, moreQuestions) });
}

/**
 * Returns whether the question was sent; if not, the page says why.
 *
 * @param {Question} question
 * @param {Turn | null} insteadOf
 * @param {readonly string[]} [moreQuestions]  To be suggested after it.
 */
function ask(question, insteadOf, moreQuestions = suggestions) {
  if (conversation.isStreaming) return false;
  const decoding = tryPrepare(question, insteadOf);
  if (decoding === null) return false;
  suggestions = moreQuestions.filter((other) => other !== question.question);
  void conversation.ask(question, decoding, insteadOf);
  return true;
}

/**
 * Null if the question cannot be asked now; then the page says why.
 *
 * @param {Question} question
 * @param {Turn | null} insteadOf
 */
function tryPrepare(question, insteadOf) {
  const decoding = tryReadDecoding();
  const body = decoding && JSON.stringify(conversation.toRequest(question, decoding, insteadOf));
  const problem = body === null ? "" : findObstacle(body);
  composer.showProblem(problem);
  return problem === "" ? decoding : null;
}

/**
 * Why a request cannot be sent; empty if it can.
 *
 * @param {string} body
 */
function findObstacle(body) {
  if (!isReady || facts === null) {
    return `${state.textContent}. You can ask as soon as the server is ready.`;
  }
  const { max_body_bytes: maxBytes } = facts;
  // A server stops reading a body that is too long, which browsers report as a lost connection.
  return body.length > maxBytes ? `The question has ${body.length} bytes; the server accepts ${maxBytes}.` : "";
}

function tryReadDecoding() {
  const read = settings.tryRead();
  return read === null ? null : { model: models.value, ...read };
}

/**
 * Shows another conversation, or a new one.
 *
 * @param {TurnTree} [tree]
 */
function open(tree) {
  suggestions = [];
  followsEnd = true;
  notice.forgetUndo();
  composer.endEdit();
  composer.showProblem("");
  if (tree !== undefined && tree.model !== "") models.choose(tree.model);
  conversation.open(tree);
  saved.render();
}

/** Updates composer and welcome text for the conversation. */
function render() {
  const { isStreaming, isEmpty } = conversation;
  composer.show({
    isReady,
    isStreaming,
    acceptsImages: facts?.accepts_images ?? true,
    acceptsVideos: facts?.accepts_videos ?? false,
    suggestions: isStreaming || isEmpty ? [] : suggestions,
  });
  find(document, "#welcome", HTMLElement).hidden = !isEmpty;
  newConversation.disabled = isEmpty;
  keepEndInView();
}

/** @param {string} text  Read out by screen readers when they have nothing else to read. */
function announce(text) {
  find(document, "#announcer", HTMLElement).textContent = text;
}

function keepEndInView() {
  if (followsEnd && !conversation.isEmpty) window.scrollTo(0, document.documentElement.scrollHeight);
}

document.addEventListener(
  "scroll",
  () => {
    followsEnd = window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - END_PIXELS;
  },
  { passive: true },
);
newConversation.addEventListener("click", () => {
  saved.openNew();
  composer.focus();
});
// For example a file that was deleted after it was chosen.
window.addEventListener("unhandledrejection", ({ reason }) => {
  composer.showProblem(reason instanceof Error ? reason.message : String(reason));
});
showCards(find(document, "#token-card", HTMLElement));
await saved.restore();
await connect();
