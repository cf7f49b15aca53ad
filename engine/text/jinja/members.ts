/** Members of values: `value.name`, `value[index]`, and the attributes of filters. */
import { tryMethod } from "./methods.ts";
import { tryItem } from "./operators.ts";
import { Namespace, Undefined } from "./values.ts";
import type { Value } from "./values.ts";

/** `value.name`: a method comes before an item of that name, as in Jinja. */
export function memberAt(value: Value, name: string): Value {
  if (value instanceof Undefined) throw value.error();
  const attribute = tryAttribute(value, name);
  const member = attribute === undefined ? tryItem(value, name) : attribute;
  return member === undefined ? new Undefined(`'${name}'`) : member;
}

/** `value[index]`: an item comes before a method of that name. */
export function itemAt(value: Value, index: Value): Value {
  if (value instanceof Undefined) throw value.error();
  const item = tryItem(value, index);
  if (item !== undefined) return item;
  const member = typeof index === "string" ? tryAttribute(value, index) : undefined;
  return member === undefined ? new Undefined(`an item of '${typeof index === "string" ? index : "a value"}'`) : member;
}

/** The method, or the member of a namespace; undefined if there is none. */
export function tryAttribute(value: Value, name: string): Value | undefined {
  return value instanceof Namespace ? value.members.get(name) : (tryMethod(value, name) ?? undefined);
}

/** The attribute of a filter: names and indexes with dots between them. */
export function attribute(value: Value, path: Value): Value {
  if (typeof path !== "string") return itemAt(value, path);
  let member = value;
  for (const part of path.split(".")) member = itemAt(member, /^\d+$/.test(part) ? Number(part) : part);
  return member;
}
