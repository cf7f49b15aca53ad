/** Jinja's filters, without those that write HTML or use chance. */
import { roundHalfToEven } from "../../round-half-to-even.ts";
import { attribute, formatPercent, tryAttribute } from "./operators.ts";
import { Given } from "./parameters.ts";
import type { Keywords } from "./parameters.ts";
import * as text from "./python-text.ts";
import { applyTest } from "./tests.ts";
import { toJson } from "./to-json.ts";
import {
  asText,
  compare,
  Float,
  isDict,
  isList,
  isTrue,
  itemsOf,
  JinjaError,
  Lazy,
  lengthOf,
  pairsOf,
  tryNumber,
  Tuple,
  typeName,
  Undefined,
} from "./values.ts";
import type { Value } from "./values.ts";

type Filter = (value: Value, args: readonly Value[], keywords: Keywords) => Value;

/** A filter with named parameters. */
function withParameters(
  name: string,
  parameters: readonly string[],
  apply: (value: Value, given: Given) => Value,
): Filter {
  return (value, args, keywords) => apply(value, new Given(name, parameters, args, keywords));
}

const onText =
  (change: (subject: string) => Value): Filter =>
  (value) =>
    change(asText(value));

const defaultFilter = withParameters("default", ["default_value", "boolean"], (value, given) => {
  const isMissing = value instanceof Undefined || (isTrue(given.get("boolean") ?? false) && !isTrue(value));
  return isMissing ? orElse(given.get("default_value"), "") : value;
});

const lengthFilter: Filter = (value) => lengthOf(value);

const escapes: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  "'": "&#39;",
  '"': "&#34;",
};
const escapeFilter = onText((subject) => subject.replace(/[&<>'"]/g, (character) => escapes[character]!));

const select =
  (isSelecting: boolean): Filter =>
  (value, [name, ...args]) =>
    new Lazy(selectableItems(value).filter((item) => isSelected(item, name, args) === isSelecting));

const selectByAttribute =
  (isSelecting: boolean): Filter =>
  (value, [path, name, ...args]) => {
    if (path === undefined) throw new JinjaError("Missing parameter for attribute name");
    return new Lazy(
      selectableItems(value).filter((item) => isSelected(attribute(item, path), name, args) === isSelecting),
    );
  };

/** Anything that is false has none, None included. */
function selectableItems(value: Value): readonly Value[] {
  return isTrue(value) ? itemsOf(value) : [];
}

function isSelected(item: Value, test: Value | undefined, args: readonly Value[]): boolean {
  return test === undefined ? isTrue(item) : applyTest(asText(test), item, args);
}

const mapFilter: Filter = (value, args, keywords) => {
  const path = keywords.get("attribute");
  const items = selectableItems(value);
  if (path !== undefined && args.length === 0) {
    const byDefault = keywords.get("default");
    return new Lazy(
      items.map((item) => {
        const found = attribute(item, path);
        return found instanceof Undefined && byDefault !== undefined ? byDefault : found;
      }),
    );
  }
  const [name, ...others] = args;
  if (name === undefined) throw new JinjaError("map requires a filter argument");
  return new Lazy(items.map((item) => applyFilter(asText(name), item, others, keywords)));
};

/** Without regard to case unless `case_sensitive`. */
function sortKey(value: Value, isCaseSensitive: boolean): Value {
  return typeof value === "string" && !isCaseSensitive ? value.toLowerCase() : value;
}

const sortParameters = ["reverse", "case_sensitive", "attribute"];
const sortFilter = withParameters("sort", sortParameters, (value, given) => {
  const isCaseSensitive = isTrue(given.get("case_sensitive") ?? false);
  const paths = given.get("attribute") ?? null;
  const names = typeof paths === "string" ? paths.split(",") : [paths];
  const keyed = itemsOf(value).map((item) => {
    const keys = names.map((path) => sortKey(path === null ? item : attribute(item, path), isCaseSensitive));
    return { item, key: new Tuple(keys) };
  });
  const direction = isTrue(given.get("reverse") ?? false) ? -1 : 1;
  return keyed.sort((a, b) => direction * compare(a.key, b.key)).map(({ item }) => item);
});

const extreme = (name: string, direction: number): Filter =>
  withParameters(name, ["case_sensitive", "attribute"], (value, given) => {
    const isCaseSensitive = isTrue(given.get("case_sensitive") ?? false);
    const path = given.get("attribute") ?? null;
    const keyOf = (item: Value): Value => sortKey(path === null ? item : attribute(item, path), isCaseSensitive);
    const [first = new Undefined("No aggregated item, sequence was empty."), ...rest] = itemsOf(value);
    return rest.reduce((best, item) => (direction * compare(keyOf(item), keyOf(best)) > 0 ? item : best), first);
  });

const dictSort = withParameters("dictsort", ["case_sensitive", "by", "reverse"], (value, given) => {
  if (!isDict(value)) throw new JinjaError(`'${typeName(value)}' object has no attribute 'items'`);
  const isCaseSensitive = isTrue(given.get("case_sensitive") ?? false);
  const position = given.text("by", "key") === "value" ? 1 : 0;
  const direction = isTrue(given.get("reverse") ?? false) ? -1 : 1;
  const keyOf = (pair: Tuple): Value => sortKey(pair.items[position]!, isCaseSensitive);
  return pairsOf(value).sort((a, b) => direction * compare(keyOf(a), keyOf(b)));
});

const join = withParameters("join", ["d", "attribute"], (value, given) => {
  const path = given.get("attribute");
  const items = itemsOf(value).map((item) => (path === undefined ? item : attribute(item, path)));
  return items.map(asText).join(given.text("d", ""));
});

const indent = withParameters("indent", ["width", "first", "blank"], (value, given) => {
  const width = given.get("width") ?? 4;
  const indentation = typeof width === "string" ? width : " ".repeat(given.integer("width", 4));
  const isBlankIndented = isTrue(given.get("blank") ?? false);
  const lines = text.splitLines(`${asText(value)}\n`);
  const [first = "", ...rest] = lines;
  const indented = rest.map((line) => (line === "" && !isBlankIndented ? line : indentation + line));
  return (isTrue(given.get("first") ?? false) ? indentation : "") + [first, ...indented].join("\n");
});

const toInteger = withParameters("int", ["default", "base"], (value, given) => {
  if (value instanceof Undefined) throw value.error();
  const number = tryNumber(value);
  if (number !== null && Number.isFinite(number)) return Math.trunc(number);
  const base = given.integer("base", 10);
  const digits = typeof value === "string" ? text.strip(value, null, "both").replaceAll(/(?<=\d)_(?=\d)/g, "") : "";
  if (base === 10 && /^[+-]?\d+$/.test(digits)) return Number(digits);
  const parsed = base === 10 ? Math.trunc(tryFloat(digits) ?? Number.NaN) : Number.parseInt(digits, base);
  return Number.isNaN(parsed) ? orElse(given.get("default"), 0) : parsed;
});

function orElse(value: Value | undefined, byDefault: Value): Value {
  return value === undefined ? byDefault : value;
}

function tryFloat(digits: string): number | null {
  return /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i.test(digits) ? Number(digits) : null;
}

const toFloat = withParameters("float", ["default"], (value, given) => {
  if (value instanceof Undefined) throw value.error();
  const number = typeof value === "string" ? tryFloat(text.strip(value, null, "both")) : tryNumber(value);
  return number === null ? orElse(given.get("default"), new Float(0)) : new Float(number);
});

const round = withParameters("round", ["precision", "method"], (value, given) => {
  const number = tryNumber(value);
  if (number === null) throw new JinjaError(`type ${typeName(value)} doesn't define __round__ method`);
  const method = given.text("method", "common");
  const factor = 10 ** given.integer("precision", 0);
  if (method === "ceil") return new Float(Math.ceil(number * factor) / factor);
  if (method === "floor") return new Float(Math.floor(number * factor) / factor);
  return value instanceof Float ? new Float(roundHalfToEven(number * factor) / factor) : number;
});

const toJsonParameters = ["ensure_ascii", "indent", "separators", "sort_keys"];
const toJsonFilter = withParameters("tojson", toJsonParameters, (value, given) => {
  const width = given.get("indent") ?? null;
  const indentation = width === null || typeof width === "string" ? width : " ".repeat(given.integer("indent", 0));
  const separators = given.get("separators") ?? null;
  const [itemSeparator = ", ", keySeparator = ": "] =
    separators === null ? [indentation === null ? ", " : ",", ": "] : itemsOf(separators).map(asText);
  return toJson(value, {
    ensureAscii: isTrue(given.get("ensure_ascii") ?? false),
    indent: indentation,
    itemSeparator,
    keySeparator,
    sortsKeys: isTrue(given.get("sort_keys") ?? false),
  });
});

const replaceFilter = withParameters("replace", ["old", "new", "count"], (value, given) => {
  const count = given.get("count") ?? null;
  const [old, replacement] = [asText(given.required("old")), asText(given.required("new"))];
  return text.replace(asText(value), old, replacement, count === null ? -1 : given.integer("count", -1));
});

const unique = withParameters("unique", ["case_sensitive", "attribute"], (value, given) => {
  const path = given.get("attribute") ?? null;
  const isCaseSensitive = isTrue(given.get("case_sensitive") ?? false);
  const seen = new Set<string>();
  const items = itemsOf(value).filter((item) => {
    const key = sortKey(path === null ? item : attribute(item, path), isCaseSensitive);
    const spelling = `${typeof key} ${asText(key)}`;
    if (seen.has(spelling)) return false;
    seen.add(spelling);
    return true;
  });
  return new Lazy(items);
});

const batch = withParameters("batch", ["linecount", "fill_with"], (value, given) => {
  const size = Math.max(1, given.integer("linecount", 1));
  const filler = given.get("fill_with") ?? null;
  const items = itemsOf(value);
  const batches = Array.from({ length: Math.ceil(items.length / size) }, (_, index) => {
    const part = items.slice(index * size, (index + 1) * size);
    return filler === null ? part : [...part, ...Array.from({ length: size - part.length }, () => filler)];
  });
  return new Lazy(batches);
});

const sum = withParameters("sum", ["attribute", "start"], (value, given) => {
  const path = given.get("attribute") ?? null;
  const items = itemsOf(value).map((item) => (path === null ? item : attribute(item, path)));
  return items.reduce((total, item) => add(total, item), given.get("start") ?? 0);
});

function add(left: Value, right: Value): Value {
  const [a, b] = [tryNumber(left), tryNumber(right)];
  if (a !== null && b !== null) return left instanceof Float || right instanceof Float ? new Float(a + b) : a + b;
  if (isList(left) && isList(right)) return [...left, ...right];
  throw new JinjaError(`unsupported operand type(s) for +: '${typeName(left)}' and '${typeName(right)}'`);
}

const reverseFilter: Filter = (value) => {
  if (typeof value === "string") return text.reverse(value);
  return new Lazy([...itemsOf(value)].reverse());
};

function firstOr(items: readonly Value[], problem: string): Value {
  const [first = new Undefined(problem)] = items;
  return first;
}

const last: Filter = (value) => {
  if (value instanceof Lazy && value.view === null) throw new JinjaError("'generator' object is not reversible");
  return firstOr(itemsOf(value).slice(-1), "No last item, sequence was empty.");
};

const abs: Filter = (value) => {
  const number = tryNumber(value);
  if (number === null) throw new JinjaError(`bad operand type for abs(): '${typeName(value)}'`);
  return value instanceof Float ? new Float(Math.abs(number)) : Math.abs(number);
};

const items: Filter = (value) => {
  if (value instanceof Undefined) return new Lazy([]);
  if (!isDict(value)) throw new JinjaError("Can only get item pairs from a mapping.");
  return new Lazy(pairsOf(value));
};

/** Jinja's `title`: every word after a space, a hyphen or an opening bracket begins in upper case. */
const titleFilter = onText((subject) =>
  subject
    .split(/([-\s({[<]+)/u)
    .map((part) => part.charAt(0).toUpperCase() + part.slice(1).toLowerCase())
    .join(""),
);

const filters: Readonly<Record<string, Filter>> = {
  abs,
  attr: (value, [name = null]) => orElse(tryAttribute(value, asText(name)), new Undefined(`'${asText(name)}'`)),
  batch,
  capitalize: onText(text.capitalize),
  center: (value, args) => {
    const width = tryNumber(args[0] ?? 80) ?? 80;
    const subject = asText(value);
    const missing = width - lengthOf(subject);
    if (missing <= 0) return subject;
    const left = Math.floor(missing / 2) + (missing % 2 === 1 && width % 2 === 1 ? 1 : 0);
    return " ".repeat(left) + subject + " ".repeat(missing - left);
  },
  count: lengthFilter,
  d: defaultFilter,
  default: defaultFilter,
  dictsort: dictSort,
  e: escapeFilter,
  escape: escapeFilter,
  first: (value) => firstOr(itemsOf(value), "No first item, sequence was empty."),
  float: toFloat,
  forceescape: escapeFilter,
  format: (value, args) => formatPercent(asText(value), args),
  indent,
  int: toInteger,
  items,
  join,
  last,
  length: lengthFilter,
  list: (value) => [...itemsOf(value)],
  lower: onText((subject) => subject.toLowerCase()),
  map: mapFilter,
  max: extreme("max", 1),
  min: extreme("min", -1),
  reject: select(false),
  rejectattr: selectByAttribute(false),
  replace: replaceFilter,
  reverse: reverseFilter,
  round,
  safe: onText((subject) => subject),
  select: select(true),
  selectattr: selectByAttribute(true),
  sort: sortFilter,
  string: onText((subject) => subject),
  sum,
  title: titleFilter,
  tojson: toJsonFilter,
  trim: (value, [characters = null]) =>
    text.strip(asText(value), characters === null ? null : asText(characters), "both"),
  unique,
  upper: onText((subject) => subject.toUpperCase()),
  urlencode: onText((subject) => encodeURIComponent(subject).replaceAll("%2F", "/")),
  wordcount: onText((subject) => subject.match(/[\p{L}\p{N}_]+/gu)?.length ?? 0),
};

/** @throws JinjaError for an unknown filter, and for values and arguments that it does not take. */
export function applyFilter(name: string, value: Value, args: readonly Value[], keywords: Keywords): Value {
  const filter = Object.hasOwn(filters, name) ? filters[name] : undefined;
  if (filter === undefined) throw new JinjaError(`No filter named '${name}'.`);
  return filter(value, args, keywords);
}
