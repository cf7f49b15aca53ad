/** Methods of strings, lists, tuples and dicts. Those that change a value are not allowed, as in transformers. */
import { Given, requireText } from "./parameters.ts";
import type { Keywords } from "./parameters.ts";
import * as text from "./python-text.ts";
import {
  areEqual,
  asText,
  Callable,
  dictKey,
  isDict,
  isList,
  itemsOf,
  JinjaError,
  keysOf,
  Lazy,
  lengthOf,
  pairsOf,
  Tuple,
} from "./values.ts";
import type { Dict, Value } from "./values.ts";

type Method<Subject> = (subject: Subject, args: readonly Value[], keywords: Keywords) => Value;

const strip =
  (sides: "both" | "left" | "right"): Method<string> =>
  (subject, [characters = null]) =>
    text.strip(subject, characters === null ? null : requireText(characters), sides);

const split =
  (name: string, divide: typeof text.split): Method<string> =>
  (subject, args, keywords) => {
    const given = new Given(name, ["sep", "maxsplit"], args, keywords);
    const separator = given.get("sep") ?? null;
    return divide(subject, separator === null ? null : requireText(separator), given.integer("maxsplit", -1));
  };

const matches =
  (test: (subject: string, part: string) => boolean): Method<string> =>
  (subject, [parts]) => {
    const given = parts instanceof Tuple ? parts.items : [parts];
    return given.some((part) => test(subject, requireText(part)));
  };

const all =
  (pattern: RegExp): Method<string> =>
  (subject) =>
    pattern.test(subject);

/** The index in code points; -1 if there is none. */
const find =
  (search: (subject: string, part: string) => number): Method<string> =>
  (subject, [part]) => {
    const index = search(subject, requireText(part));
    return index === -1 ? -1 : lengthOf(subject.slice(0, index));
  };

const found =
  (search: Method<string>): Method<string> =>
  (...call) => {
    const index = search(...call);
    if (index === -1) throw new JinjaError("substring not found");
    return index;
  };

const pad =
  (fill: (subject: string, missing: number, character: string) => string): Method<string> =>
  (subject, args) => {
    const given = new Given("padding", ["width", "fillchar"], args, new Map());
    const missing = given.integer("width", 0) - lengthOf(subject);
    return missing <= 0 ? subject : fill(subject, missing, given.text("fillchar", " "));
  };

const partition =
  (search: (subject: string, part: string) => number, whole: (subject: string) => string[]): Method<string> =>
  (subject, [separator]) => {
    const mark = requireText(separator);
    const index = search(subject, mark);
    if (index === -1) return new Tuple(whole(subject));
    return new Tuple([subject.slice(0, index), mark, subject.slice(index + mark.length)]);
  };

const indexOf = (subject: string, part: string): number => subject.indexOf(part);
const lastIndexOf = (subject: string, part: string): number => subject.lastIndexOf(part);

const stringMethods: Readonly<Record<string, Method<string>>> = {
  capitalize: text.capitalize,
  casefold: (subject) => subject.toLowerCase(),
  center: pad((subject, missing, character) => {
    const isWidthOdd = (lengthOf(subject) + missing) % 2 === 1;
    const left = Math.floor(missing / 2) + (missing % 2 === 1 && isWidthOdd ? 1 : 0);
    return character.repeat(left) + subject + character.repeat(missing - left);
  }),
  count: (subject, [part]) => (part === "" ? lengthOf(subject) + 1 : subject.split(requireText(part)).length - 1),
  endswith: matches((subject, part) => subject.endsWith(part)),
  find: find(indexOf),
  format: (subject, args, keywords) =>
    text.format(subject, args.map(asText), new Map(Array.from(keywords, ([name, value]) => [name, asText(value)]))),
  index: found(find(indexOf)),
  isalnum: all(/^[\p{L}\p{N}]+$/u),
  isalpha: all(/^\p{L}+$/u),
  isdecimal: all(/^\p{Nd}+$/u),
  isdigit: all(/^[\p{Nd}\u00b2\u00b3\u00b9\u2070-\u2089\u2460-\u2468]+$/u),
  islower: text.isLower,
  isnumeric: all(/^\p{N}+$/u),
  isspace: (subject) => subject !== "" && text.strip(subject, null, "both") === "",
  istitle: (subject) => /\p{Cased}/u.test(subject) && text.title(subject) === subject,
  isupper: text.isUpper,
  join: (subject, [items = null]) => itemsOf(items).map(requireText).join(subject),
  ljust: pad((subject, missing, character) => subject + character.repeat(missing)),
  lower: (subject) => subject.toLowerCase(),
  lstrip: strip("left"),
  partition: partition(indexOf, (subject) => [subject, "", ""]),
  removeprefix: (subject, [part]) => {
    const prefix = requireText(part);
    return subject.startsWith(prefix) ? subject.slice(prefix.length) : subject;
  },
  removesuffix: (subject, [part]) => {
    const suffix = requireText(part);
    return suffix !== "" && subject.endsWith(suffix) ? subject.slice(0, -suffix.length) : subject;
  },
  replace: (subject, args, keywords) => {
    const given = new Given("replace", ["old", "new", "count"], args, keywords);
    const [old, replacement] = [requireText(given.required("old")), requireText(given.required("new"))];
    return text.replace(subject, old, replacement, given.integer("count", -1));
  },
  rfind: find(lastIndexOf),
  rindex: found(find(lastIndexOf)),
  rjust: pad((subject, missing, character) => character.repeat(missing) + subject),
  rpartition: partition(lastIndexOf, (subject) => ["", "", subject]),
  rsplit: split("rsplit", text.splitFromRight),
  rstrip: strip("right"),
  split: split("split", text.split),
  splitlines: (subject) => text.splitLines(subject),
  startswith: matches((subject, part) => subject.startsWith(part)),
  strip: strip("both"),
  swapcase: text.swapCase,
  title: text.title,
  upper: (subject) => subject.toUpperCase(),
  zfill: (subject, [width = 0]) => {
    const sign = /^[+-]/.exec(subject)?.[0] ?? "";
    return sign + subject.slice(sign.length).padStart(Number(width) - sign.length, "0");
  },
};

const dictMethods: Readonly<Record<string, Method<Dict>>> = {
  copy: (subject) => new Map(subject),
  get: (subject, args) => {
    const given = new Given("get", ["key", "default"], args, new Map());
    const value = subject.get(dictKey(given.required("key")));
    return value === undefined ? (given.get("default") ?? null) : value;
  },
  items: (subject) => new Lazy(pairsOf(subject), "dict_items"),
  keys: (subject) => new Lazy(keysOf(subject), "dict_keys"),
  values: (subject) => new Lazy([...subject.values()], "dict_values"),
};

const listMethods: Readonly<Record<string, Method<readonly Value[]>>> = {
  copy: (subject) => [...subject],
  count: (subject, [item = null]) => subject.filter((each) => areEqual(each, item)).length,
  index: (subject, [item = null]) => {
    const index = subject.findIndex((each) => areEqual(each, item));
    if (index === -1) throw new JinjaError("the list has no such item");
    return index;
  },
};

/** Their names exist, but they must not be called. */
const changingMethods: ReadonlySet<string> = new Set(
  "add append clear discard extend insert pop popitem remove reverse setdefault sort update".split(" "),
);

/** The method of a value; null if it has none of that name. */
export function tryMethod(subject: Value, name: string): Callable | null {
  if (typeof subject === "string") return bind(stringMethods, subject, name);
  if (isDict(subject)) return bind(dictMethods, subject, name) ?? forbidden(name);
  if (isList(subject)) return bind(listMethods, subject, name) ?? forbidden(name);
  return subject instanceof Tuple ? bind(listMethods, subject.items, name) : null;
}

function bind<Subject>(
  methods: Readonly<Record<string, Method<Subject>>>,
  subject: Subject,
  name: string,
): Callable | null {
  const method = Object.hasOwn(methods, name) ? methods[name] : undefined;
  return method === undefined ? null : new Callable(name, (args, keywords) => method(subject, args, keywords));
}

function forbidden(name: string): Callable | null {
  if (!changingMethods.has(name)) return null;
  return new Callable(name, () => {
    throw new JinjaError(`a template must not call ${name}, which changes a value`);
  });
}
