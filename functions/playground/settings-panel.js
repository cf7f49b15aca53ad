/** The settings panel: opens and closes, and shows errors next to their fields. */
import { find } from "./elements.js";
import { checkedFields, parseSettings } from "./settings-fields.js";

/** @import { AnswerForm, CheckedField, Problems } from "./settings-fields.js" */
/** @import { ServiceFacts } from "./server-client.js" */

/** @type {Readonly<Record<AnswerForm, { label: string, placeholder: string }>>} */
const forms = {
  text: { label: "", placeholder: "" },
  json: { label: "JSON Schema", placeholder: '{"type": "object", "properties": {"color": {"type": "string"}}}' },
  regex: { label: "Regular expression", placeholder: "(Yes|No)" },
  choice: { label: "Choices, one per line", placeholder: "circle\nsquare" },
};

/**
 * How errors of the server name what the panel has under another name.
 *
 * @type {Readonly<Record<string, CheckedField>>}
 */
const otherNames = {
  max_completion_tokens: "max_tokens",
  top_logprobs: "logprobs",
  response_format: "structured_outputs",
};

export function createSettingsPanel() {
  const panel = find(document, "#settings", HTMLElement);
  const toggle = find(document, "#settings-toggle", HTMLButtonElement);
  const form = find(document, "#settings-form", HTMLFormElement);
  const formChoice = find(form, "#form", HTMLSelectElement);
  const formText = find(form, "#structured_outputs", HTMLTextAreaElement);
  let maxLogprobs = 0;

  /** @param {boolean} isOpen */
  function open(isOpen) {
    panel.hidden = !isOpen;
    toggle.setAttribute("aria-expanded", String(isOpen));
  }

  function close() {
    open(false);
    toggle.focus();
  }

  function read() {
    const data = new FormData(form);
    const text = (/** @type {string} */ name) => /** @type {string} */ (data.get(name));
    const texts = {
      temperature: text("temperature"),
      top_p: text("top_p"),
      max_tokens: text("max_tokens"),
      seed: text("seed"),
      form: /** @type {AnswerForm} */ (formChoice.value),
      structured_outputs: text("structured_outputs"),
      vllm_xargs: text("vllm_xargs"),
      logprobs: data.has("logprobs"),
    };
    return { ...parseSettings(texts, maxLogprobs), systemPrompt: text("system").trim() };
  }

  /** @param {Problems} problems */
  function showProblems(problems) {
    for (const name of checkedFields) {
      const field = find(form, `#${name}`, HTMLElement);
      find(form, `#${name}-problem`, HTMLElement).textContent = problems[name] ?? "";
      if (problems[name] === undefined) field.removeAttribute("aria-invalid");
      else field.setAttribute("aria-invalid", "true");
    }
  }

  function showForm() {
    const { label, placeholder } = forms[/** @type {AnswerForm} */ (formChoice.value)];
    find(form, "#structured_outputs-field", HTMLElement).hidden = formChoice.value === "text";
    find(form, "#structured_outputs-label", HTMLElement).textContent = label;
    formText.placeholder = placeholder;
  }

  toggle.addEventListener("click", () => {
    open(panel.hidden === true);
    if (!panel.hidden) find(form, "#temperature", HTMLElement).focus();
  });
  find(document, "#settings-close", HTMLButtonElement).addEventListener("click", close);
  panel.addEventListener("keydown", ({ key }) => {
    if (key === "Escape") close();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", () => showProblems(read().problems));
  formChoice.addEventListener("change", () => {
    showForm();
    if (formChoice.value !== "text") formText.focus();
  });
  // The browser may have kept the form's content over a reload.
  showForm();

  return {
    /** Null if a setting is invalid; then the panel is open at it. */
    tryRead() {
      const { fields, problems, systemPrompt } = read();
      showProblems(problems);
      const [wrong] = Object.keys(problems);
      if (wrong === undefined) return { fields, systemPrompt };
      open(true);
      find(form, `#${wrong}`, HTMLElement).focus();
      return null;
    },

    /**
     * Shows an error of the server next to its field, if the panel has that field.
     *
     * @param {string} parameter
     * @param {string} message
     */
    showError(parameter, message) {
      const [start = ""] = parameter.split(/[.[]/);
      const name = checkedFields.find((field) => field === (otherNames[start] ?? start));
      if (name === undefined) return;
      showProblems({ [name]: message });
      // If the panel covers the conversation, the error there comes first.
      if (matchMedia("(min-width: 60rem)").matches) open(true);
    },

    /**
     * @param {ServiceFacts} facts
     * @param {readonly string[]} logitsProcessors
     */
    showService({ default_sampling: defaults, max_logprobs }, logitsProcessors) {
      maxLogprobs = max_logprobs;
      for (const name of ["temperature", "top_p", "max_tokens"]) {
        find(form, `#${name}`, HTMLInputElement).placeholder = String(defaults[name] ?? "");
      }
      find(form, "#vllm_xargs-help", HTMLElement).textContent =
        logitsProcessors.length === 0
          ? "This server has no logits processors."
          : `Loaded: ${logitsProcessors.join(", ")}.`;
    },
  };
}
