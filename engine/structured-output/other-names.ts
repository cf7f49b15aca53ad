/** JSON strings other than some: the names of properties that a schema does not describe. */
import { complement, LAST_CODE_POINT, unite } from "./code-point-set.ts";
import { alternativesOf, literalOf, sequenceOf } from "./expression.ts";
import type { Expression } from "./expression.ts";
import { StringEscaper, escapeText, quoted, repeat, rule } from "./json-text.ts";

/** What some of the names begin with. */
interface Beginning {
  /** Whether it is one of the names. */
  isName: boolean;
  /** By the next character. */
  readonly longer: Map<string, Beginning>;
}

/** Characters of names that one rule follows. Readers recurse over the parts of a rule. */
const CHARACTERS_PER_RULE = 16;

/** The rule of the end of a name that differs from all names. All objects of a schema share it. */
const anyEndName = "end of a name";

/**
 * Returns all strings but `names`. Only characters that need an escape have one: another spelling of a name would be the
 * same name. `prefix` begins the names of the rules that are added, one for each beginning of some length.
 */
export function namesOtherThan(names: readonly string[], prefix: string, rules: Map<string, Expression>): Expression {
  const escaper = new StringEscaper();
  const pending: [name: string, beginning: Beginning][] = [];
  const ruleFor = (beginning: Beginning): Expression => {
    const name = `${prefix} ${pending.length}`;
    pending.push([name, beginning]);
    return rule(name);
  };
  const endsOf = ({ isName, longer }: Beginning, numCharactersLeft: number): Expression => {
    const options: Expression[] = isName ? [] : [literalOf("")];
    for (const [character, next] of longer) {
      const ends = numCharactersLeft === 0 ? ruleFor(next) : endsOf(next, numCharactersLeft - 1);
      options.push(sequenceOf([literalOf(escapeText(character)), ends]));
    }
    const points = Array.from(longer.keys(), (character) => character.codePointAt(0)!);
    const others = complement(unite(points.map((point) => [point, point] as const)));
    options.push(sequenceOf([escaper.escape({ kind: "set", set: others }), rule(anyEndName)]));
    return alternativesOf(options);
  };
  const start = ruleFor(beginningsOf(names));
  // The list grows meanwhile.
  for (const [name, beginning] of pending) rules.set(name, endsOf(beginning, CHARACTERS_PER_RULE));
  if (!rules.has(anyEndName)) {
    rules.set(anyEndName, repeat(escaper.escape({ kind: "set", set: [[0, LAST_CODE_POINT]] }), 0, Infinity));
  }
  return quoted(start);
}

/** The empty beginning, with those that are longer. */
function beginningsOf(names: readonly string[]): Beginning {
  const root: Beginning = { isName: false, longer: new Map() };
  for (const name of names) {
    let beginning = root;
    for (const character of name) {
      let next = beginning.longer.get(character);
      if (next === undefined) beginning.longer.set(character, (next = { isName: false, longer: new Map() }));
      beginning = next;
    }
    beginning.isName = true;
  }
  return root;
}
