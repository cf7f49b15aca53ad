/** Finds and creates elements, with checked types. */

/**
 * Throws where the page has no such element, or one of another kind.
 *
 * @template {Element} Kind
 * @param {ParentNode} parent
 * @param {string} selector
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
export function find(parent, selector, kind) {
  const found = parent.querySelector(selector);
  if (found instanceof kind) return found;
  throw new Error(`The page has no ${kind.name} at ${selector}.`);
}

/**
 * The one element of the page's template of that id, copied.
 *
 * @template {Element} Kind
 * @param {string} templateId
 * @param {new () => Kind} kind
 * @returns {Kind}
 */
export function fromTemplate(templateId, kind) {
  const template = find(document, `#${templateId}`, HTMLTemplateElement);
  const copy = document.importNode(template.content, true).firstElementChild;
  if (copy instanceof kind) return copy;
  throw new Error(`The template ${templateId} contains no ${kind.name}.`);
}

/**
 * @template {keyof HTMLElementTagNameMap} Name
 * @param {Name} name
 * @param {Partial<HTMLElementTagNameMap[Name]>} [properties]
 * @param {readonly (Node | string)[]} [children]
 * @returns {HTMLElementTagNameMap[Name]}
 */
export function create(name, properties = {}, children = []) {
  const element = document.createElement(name);
  Object.assign(element, properties);
  element.append(...children);
  return element;
}
