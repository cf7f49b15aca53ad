/** Entry of the thread that compiles grammars: takes as long as each needs, and is ended when that is too long. */
import { parentPort, workerData } from "node:worker_threads";

import { invariant } from "../contract/errors.ts";
import type { GrammarVocabulary } from "./grammar-vocabulary.ts";
import type { StructuredOutput } from "./structured-output.ts";
import { compileGrammar, createCompilerImage } from "./xgrammar.ts";
import type { CompilationResult } from "./xgrammar.ts";

/** The next one is posted when the reply to the last has come. */
export type CompileTask = StructuredOutput;

export type CompileReply =
  /** The thread can begin; said once, before anything else. */
  { readonly kind: "ready" } | CompilationResult;

const port = parentPort;
invariant(port !== null, "compile-worker.ts is the entry of a worker thread");
const reply = (message: CompileReply): void => port.postMessage(message);

const compilerImage = createCompilerImage(workerData as GrammarVocabulary);
port.on("message", (task: CompileTask) => reply(compileGrammar(compilerImage, task)));
reply({ kind: "ready" });
