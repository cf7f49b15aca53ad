/** Errors of a model's own code, which its author has to find. */
import { EngineError } from "../contract/errors.ts";
import { describeError } from "../excerpt.ts";
import type { MultiModalProcessor } from "./multimodal-processor.ts";

/**
 * The processor, whose functions throw only EngineErrors: other errors become `internal` and name the function.
 *
 * A proxy, because processors may be instances of classes.
 */
export function withNamedErrors(processor: MultiModalProcessor): MultiModalProcessor {
  return new Proxy(processor, {
    get(target, member) {
      const value: unknown = Reflect.get(target, member, target);
      if (typeof value !== "function") return value;
      return (...given: readonly unknown[]): unknown =>
        namingMember(String(member), () => Reflect.apply(value, target, given));
    },
  });
}

/** Runs code of a model's processor, also if it returns a promise. Throws EngineErrors as they are. */
export function namingMember<Result>(member: string, run: () => Result): Result {
  const rename = (error: unknown): EngineError =>
    error instanceof EngineError
      ? error
      : new EngineError("internal", `The model's ${member} failed: ${describeError(error)}.`, { cause: error });
  try {
    const result = run();
    if (!(result instanceof Promise)) return result;
    return result.catch((error: unknown) => {
      throw rename(error);
    }) as Result;
  } catch (error) {
    throw rename(error);
  }
}
