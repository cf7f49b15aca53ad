/** Lists of texts as grammars. */

interface TrieNode {
  readonly children: Map<string, TrieNode>;
  /** Whether a choice ends here. */
  isEnd: boolean;
}

/**
 * EBNF in XGrammar's spelling: `ruleName` matches exactly one of `choices`, which are well-formed and not empty. Every
 * rule decides on one character, so that thousands of choices that begin alike make small automata.
 */
export function toEbnf(choices: readonly string[], ruleName: string): string {
  const root: TrieNode = { children: new Map(), isEnd: false };
  for (const choice of choices) insert(root, choice);
  const rules: string[] = [];
  const pending: [name: string, node: TrieNode][] = [[ruleName, root]];
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    const [name, node] = next;
    const alternatives = Array.from(node.children, ([first, child]) => {
      const { text, end } = followChain(first, child);
      if (end.children.size === 0) return quote(text);
      const rule = `${ruleName}_${rules.length}_${pending.length}`;
      pending.push([rule, end]);
      return `${quote(text)} ${rule}`;
    });
    rules.push(`${name} ::= ${[...alternatives, ...(node.isEnd ? ['""'] : [])].join(" | ")}`);
  }
  return rules.join("\n");
}

function insert(root: TrieNode, choice: string): void {
  let node = root;
  for (const character of choice) {
    let child = node.children.get(character);
    if (child === undefined) node.children.set(character, (child = { children: new Map(), isEnd: false }));
    node = child;
  }
  node.isEnd = true;
}

/** Goes on to the next node at which there is something to decide. */
function followChain(first: string, child: TrieNode): { readonly text: string; readonly end: TrieNode } {
  let text = first;
  let end = child;
  while (!end.isEnd && end.children.size === 1) {
    const [[character, next]] = end.children;
    text += character;
    end = next;
  }
  return { text, end };
}

/** The two characters that mean something inside an EBNF string, and those that a grammar cannot contain as they are. */
// oxlint-disable-next-line no-control-regex -- control characters are what it looks for
const SPECIAL_CHARACTERS = /["\\\u0000-\u001F\u007F]/gu;

function quote(text: string): string {
  const escaped = text.replaceAll(SPECIAL_CHARACTERS, (character) =>
    character === '"' || character === "\\"
      ? `\\${character}`
      : `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
  return `"${escaped}"`;
}
