/** Detects whether a chat template expects a message's content as one string, as a list of parts, or as either. */

/**
 * `parts`: the template iterates over the content and writes each part itself, pictures included.
 * `string`: it prints the content; the pictures' placeholders must be in the text.
 * `either`: it does both, according to the content's type. In places that only texts are expected to reach, such as a
 * system message, it may print the content without looking.
 * `spelled`: like `string`, and pictures stand in the text where they are in the message, between their markers. Only a
 * model's definition asks for it.
 */
export type ContentFormat = "string" | "parts" | "either" | "spelled";

/** A node of a template's syntax tree, with the fields that are read here. */
interface SyntaxNode {
  readonly type: string;
  readonly [field: string]: unknown;
}

/**
 * Looks for a loop over `message.content`, like vLLM's detection, and for `message.content is string`. Names are followed
 * through `set`, slices, filters and macro arguments, and no template is rendered.
 */
export function detectContentFormat(program: object): Exclude<ContentFormat, "spelled"> {
  const names = new ContentNames();
  const nodes = [...descendants(program)];
  let numKnown = -1;
  // A name may be used above its definition (macros): repeat until no new names are found.
  while (numKnown !== names.size) {
    numKnown = names.size;
    for (const node of nodes) names.learnFrom(node, nodes);
  }
  if (!nodes.some((node) => node.type === "For" && names.isContent(node.iterable))) return "string";
  return nodes.some((node) => isStringTest(node) && names.isContent(node.operand)) ? "either" : "parts";
}

/** Whether a template has roles for the query and the document of a reranker. */
export function detectPairRoles(program: object): boolean {
  const texts = new Set<unknown>();
  for (const node of descendants(program)) {
    if (node.type === "StringLiteral") texts.add(node.value);
  }
  return texts.has("query") && texts.has("document");
}

/** Names that a template gives to the messages, to one message, and to a message's content. */
class ContentNames {
  readonly #messages = new Set(["messages"]);
  readonly #message = new Set<string>();
  readonly #content = new Set<string>();

  get size(): number {
    return this.#messages.size + this.#message.size + this.#content.size;
  }

  learnFrom(node: SyntaxNode, nodes: readonly SyntaxNode[]): void {
    if (node.type === "For" && this.#isMessages(node.iterable)) this.#add(this.#message, node.loopvar);
    if (node.type === "Set") this.#bind(node.assignee, node.value);
    if (node.type === "CallExpression") {
      const macro = nodes.find((other) => other.type === "Macro" && nameOf(other.name) === nameOf(node.callee));
      const parameters = asList(macro?.args);
      for (const [index, argument] of asList(node.args).entries()) this.#bind(parameters[index], argument);
    }
  }

  isContent(value: unknown): boolean {
    const node = asNode(value);
    if (node === null) return false;
    if (node.type === "Identifier") return this.#content.has(nameOf(node) ?? "");
    if (node.type === "MemberExpression") return this.#isMessage(node.object) && nameOf(node.property) === "content";
    return insides(node).some((inside) => this.isContent(inside));
  }

  #isMessages(value: unknown): boolean {
    const node = asNode(value);
    if (node === null) return false;
    if (node.type === "Identifier") return this.#messages.has(nameOf(node) ?? "");
    if (node.type === "MemberExpression") {
      return this.#isMessages(node.object) && asNode(node.property)?.type === "SliceExpression";
    }
    if (choosesOne(node)) return false;
    return insides(node).some((inside) => this.#isMessages(inside));
  }

  #isMessage(value: unknown): boolean {
    const node = asNode(value);
    if (node?.type === "Identifier") return this.#message.has(nameOf(node) ?? "");
    if (node !== null && choosesOne(node)) return this.#isMessages(node.operand);
    return node?.type === "MemberExpression" && !this.#isMessages(node) && this.#isMessages(node.object);
  }

  #bind(target: unknown, value: unknown): void {
    if (this.isContent(value)) this.#add(this.#content, target);
    else if (this.#isMessages(value)) this.#add(this.#messages, target);
    else if (this.#isMessage(value)) this.#add(this.#message, target);
  }

  #add(names: Set<string>, target: unknown): void {
    const name = asNode(target)?.type === "Identifier" ? nameOf(target) : null;
    if (name !== null) names.add(name);
  }
}

/** Whether a filter takes one element of a list. */
function choosesOne({ type, filter }: SyntaxNode): boolean {
  if (type !== "FilterExpression" || typeof filter !== "object" || filter === null || !("name" in filter)) return false;
  return filter.name === "first" || filter.name === "last";
}

/** Every node of the tree, parents before children. */
function* descendants(value: unknown): Iterable<SyntaxNode> {
  if (typeof value !== "object" || value === null) return;
  const node = asNode(value);
  if (node !== null) yield node;
  for (const child of Object.values(value)) yield* descendants(child);
}

function isStringTest({ type, test }: SyntaxNode): boolean {
  return type === "TestExpression" && nameOf(test) === "string";
}

/** Parts that an expression passes on unchanged except for filtering: operands of filters, selections, conditionals. */
function insides(node: SyntaxNode): unknown[] {
  if (node.type === "FilterExpression") return [node.operand];
  if (node.type === "Ternary") return [node.trueExpr, node.falseExpr];
  return [];
}

function asNode(value: unknown): SyntaxNode | null {
  const isNode = typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
  return isNode ? (value as SyntaxNode) : null;
}

function asList(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

/** The name of an identifier or the value of a string: `message.content` equals `message["content"]`. */
function nameOf(value: unknown): string | null {
  const node = asNode(value);
  const isName = node?.type === "Identifier" || node?.type === "StringLiteral";
  return isName && typeof node.value === "string" ? node.value : null;
}
