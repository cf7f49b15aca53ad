/**
 * Writes the keywords of older drafts of JSON Schema, and `nullable` of OpenAPI 3.0, as those of draft 2020-12. Leaves out
 * `uniqueItems: false` and boolean `propertyNames`.
 */

type JsonObject = Readonly<Record<string, unknown>>;

/** The same object if it has no such keyword. */
export function modernSchema(schema: JsonObject): JsonObject {
  const keywords = Object.keys(schema).filter((keyword) => Object.hasOwn(rewrites, keyword));
  return keywords.reduce((modern, keyword) => rewrites[keyword]!(modern), schema);
}

const rewrites: Readonly<Record<string, (schema: JsonObject) => JsonObject>> = {
  items: withPrefixItems,
  exclusiveMinimum: (schema) => withExclusiveBound(schema, "exclusiveMinimum", "minimum"),
  exclusiveMaximum: (schema) => withExclusiveBound(schema, "exclusiveMaximum", "maximum"),
  dependencies: withDependents,
  uniqueItems: withoutFalse,
  nullable: withNull,
  propertyNames: withNamesOfSchemas,
};

/** Until draft 2019-09, a list of `items` were the first items. */
function withPrefixItems(schema: JsonObject): JsonObject {
  const { items, additionalItems, ...others } = schema;
  if (!Array.isArray(items) || others.prefixItems !== undefined) return schema;
  const further = additionalItems === undefined ? {} : { items: additionalItems };
  return items.length === 0 ? { ...others, ...further } : { ...others, prefixItems: items as unknown[], ...further };
}

/** In draft 4, the bound was another keyword, and this one said whether it is excluded. */
function withExclusiveBound(schema: JsonObject, keyword: string, boundKeyword: string): JsonObject {
  const { [keyword]: isExclusive, ...others } = schema;
  if (typeof isExclusive !== "boolean") return schema;
  const { [boundKeyword]: bound, ...unbounded } = others;
  return isExclusive && bound !== undefined ? { ...unbounded, [keyword]: bound } : others;
}

/** Until draft 7, one keyword had the names and the schemas. */
function withDependents(schema: JsonObject): JsonObject {
  const { dependencies, ...others } = schema;
  if (typeof dependencies !== "object" || dependencies === null) return schema;
  const [names, schemas] = [true, false].map((isList) =>
    Object.fromEntries(Object.entries(dependencies).filter(([, dependent]) => Array.isArray(dependent) === isList)),
  );
  return {
    ...others,
    dependentRequired: { ...names, ...(others.dependentRequired as JsonObject | undefined) },
    dependentSchemas: { ...schemas, ...(others.dependentSchemas as JsonObject | undefined) },
  };
}

function withoutFalse(schema: JsonObject): JsonObject {
  const { uniqueItems, ...others } = schema;
  return uniqueItems === true ? schema : others;
}

/** In OpenAPI 3.0, a type of its own is no list. Without a type, the keyword says nothing. */
function withNull(schema: JsonObject): JsonObject {
  const { nullable, ...others } = schema;
  if (nullable !== true || others.type === undefined) return others;
  return { ...others, type: [...[others.type].flat(), "null"] };
}

/** Without boolean schemas of names. */
function withNamesOfSchemas(schema: JsonObject): JsonObject {
  const { propertyNames, ...others } = schema;
  if (typeof propertyNames !== "boolean") return schema;
  return propertyNames ? others : { ...others, maxProperties: 0 };
}
