/** Functions that every chat template may call. */
import { Given } from "./parameters.ts";
import type { Keywords } from "./parameters.ts";
import { asText, Callable, dictKey, isDict, itemsOf, JinjaError, Namespace } from "./values.ts";
import type { Dict, Value } from "./values.ts";

/** Jinja's sandbox allows no longer range. */
const MAX_RANGE = 100_000;

function createDict(args: readonly Value[], keywords: Keywords): Dict {
  const dict: Dict = new Map();
  for (const argument of args) {
    if (isDict(argument)) {
      for (const [key, value] of argument) dict.set(key, value);
    } else {
      for (const pair of itemsOf(argument)) {
        const [key = null, value = null] = itemsOf(pair);
        dict.set(dictKey(key), value);
      }
    }
  }
  for (const [key, value] of keywords) dict.set(key, value);
  return dict;
}

const range = new Callable("range", (args) => {
  const [start, stop, step = 1] = args.length === 1 ? [0, args[0]] : args;
  if (typeof start !== "number" || typeof stop !== "number" || typeof step !== "number" || step === 0) {
    throw new JinjaError("range takes one to three integers, of which the third is not zero");
  }
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > MAX_RANGE) throw new JinjaError(`Range too big. The sandbox blocks ranges larger than ${MAX_RANGE}.`);
  return Array.from({ length }, (_, index) => start + index * step);
});

const namespace = new Callable("namespace", (args, keywords) => {
  return new Namespace(createDict(args, keywords) as Map<string, Value>);
});

const dict = new Callable("dict", createDict);

/** Nothing at its first call, then a separator. */
const joiner = new Callable("joiner", (args, keywords) => {
  const separator = new Given("joiner", ["sep"], args, keywords).text("sep", ", ");
  let isUsed = false;
  return new Callable("joiner", () => {
    const text = isUsed ? separator : "";
    isUsed = true;
    return text;
  });
});

const cycler = new Callable("cycler", (items) => {
  if (items.length === 0) throw new JinjaError("at least one item has to be provided");
  let index = 0;
  const members = new Map<string, Value>([["current", items[0]!]]);
  const moveTo = (next: number): void => {
    index = next;
    members.set("current", items[index]!);
  };
  const next = new Callable("next", () => {
    const item = items[index]!;
    moveTo((index + 1) % items.length);
    return item;
  });
  const reset = new Callable("reset", () => {
    moveTo(0);
    return null;
  });
  members.set("next", next).set("reset", reset);
  return new Namespace(members);
});

const strftimeNow = new Callable("strftime_now", (args, keywords) => {
  return formatTime(new Date(), asText(new Given("strftime_now", ["format"], args, keywords).required("format")));
});

const months = "January February March April May June July August September October November December".split(" ");
const weekdays = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split(" ");

/** Python's `strftime` in English and local time. `%-d` and the like have no zeros in front. */
export function formatTime(date: Date, format: string): string {
  const two = (value: number): string => String(value).padStart(2, "0");
  const hour12 = date.getHours() % 12 === 0 ? 12 : date.getHours() % 12;
  const startOfYear = Date.UTC(date.getFullYear(), 0, 1);
  const dayOfYear = (Date.UTC(date.getFullYear(), date.getMonth(), date.getDate()) - startOfYear) / 86_400_000 + 1;
  const month = months[date.getMonth()]!;
  const weekday = weekdays[date.getDay()]!;
  const day = dayOfYear - 1;
  const weekdayIndex = date.getDay();
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  const shortDate = `${two(date.getMonth() + 1)}/${two(date.getDate())}/${two(date.getFullYear() % 100)}`;
  const half = date.getHours() < 12 ? "AM" : "PM";
  const dayOfMonth = String(date.getDate()).padStart(2);
  const fields: Readonly<Record<string, string>> = {
    "%": "%",
    A: weekday,
    a: weekday.slice(0, 3),
    B: month,
    b: month.slice(0, 3),
    C: two(Math.floor(date.getFullYear() / 100)),
    c: `${weekday.slice(0, 3)} ${month.slice(0, 3)} ${dayOfMonth} ${time} ${date.getFullYear()}`,
    D: shortDate,
    d: two(date.getDate()),
    e: dayOfMonth,
    F: `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
    f: String(date.getMilliseconds() * 1000).padStart(6, "0"),
    H: two(date.getHours()),
    h: month.slice(0, 3),
    I: two(hour12),
    j: String(dayOfYear).padStart(3, "0"),
    k: String(date.getHours()).padStart(2),
    l: String(hour12).padStart(2),
    M: two(date.getMinutes()),
    m: two(date.getMonth() + 1),
    n: "\n",
    P: half.toLowerCase(),
    p: half,
    R: time.slice(0, 5),
    r: `${two(hour12)}${time.slice(2)} ${half}`,
    S: two(date.getSeconds()),
    T: time,
    t: "\t",
    U: two(Math.floor((day + 7 - weekdayIndex) / 7)),
    u: String(weekdayIndex === 0 ? 7 : weekdayIndex),
    W: two(Math.floor((day + 7 - ((weekdayIndex + 6) % 7)) / 7)),
    w: String(weekdayIndex),
    X: time,
    x: shortDate,
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    // As of a time without a zone.
    Z: "",
    z: "",
  };
  return format.replace(/%(-?)([%A-Za-z])/g, (whole: string, sign: string, name: string) => {
    const field = fields[name];
    if (field === undefined) return whole;
    return sign === "-" ? field.replace(/^[0 ]+(?=\d)/, "") : field;
  });
}

export const functions: ReadonlyMap<string, Callable> = new Map(
  [range, namespace, dict, joiner, cycler, strftimeNow].map((each) => [each.name, each]),
);
