/** Memory of the host that takes a page of the machine when it is first written to, and gives pages back. */
import { readFileSync } from "node:fs";
import { platform } from "node:os";
import koffi from "koffi";

import { EngineError } from "../contract/errors.ts";
import { bytesPerElement, typedArrayOver } from "./element-type.ts";
import type { TensorElementType } from "./element-type.ts";
import { addressOf } from "./ort-api.ts";
import { checkedByteLength, Tensor } from "./tensor.ts";

/** madvise(2) on Linux. */
const MADV_DONTNEED = 4;
const MADV_NOHUGEPAGE = 15;

/** vm.overcommit_memory: the system counts reserved memory as taken. */
const strictOvercommit = "2";

interface PageCalls {
  readonly pageBytes: number;
  readonly madvise: (address: bigint, numBytes: number, advice: number) => number;
}

/** Undefined until looked up; null where pages cannot be given back. */
let pageCalls: PageCalls | null | undefined;

/**
 * Bytes of a page; null where memory cannot be reserved beyond what the machine has, or pages cannot be given back one by
 * one: on systems other than Linux, and under strict overcommit.
 */
export function releasablePageBytes(): number | null {
  return findPageCalls()?.pageBytes ?? null;
}

/**
 * Zeros that start at a page. Pages of 2 MiB are switched off: with them, a byte would take as much.
 *
 * @throws EngineError `runtime_failed` if the memory cannot be reserved.
 */
export function allocatePages<E extends TensorElementType>(elementType: E, shape: readonly number[]): Tensor<E> {
  const { pageBytes, madvise } = requirePageCalls();
  const numBytes = checkedByteLength(elementType, shape);
  const wholePages = Math.ceil(numBytes / pageBytes) * pageBytes;
  let buffer: ArrayBuffer;
  try {
    buffer = new ArrayBuffer(wholePages + pageBytes);
  } catch (cause) {
    throw new EngineError("runtime_failed", `${wholePages} bytes of address space cannot be reserved.`, { cause });
  }
  const past = Number(addressOf(new Uint8Array(buffer)) % BigInt(pageBytes));
  const start = past === 0 ? 0 : pageBytes - past;
  const data = typedArrayOver(elementType, buffer, start, numBytes / bytesPerElement(elementType));
  // The call fails on a system without pages of 2 MiB, which then needs no advice.
  madvise(addressOf(data), wholePages, MADV_NOHUGEPAGE);
  // A small array may be recycled memory, of which every page was filled with zeros.
  madvise(addressOf(data), wholePages, MADV_DONTNEED);
  return Tensor.fromTypedArray(elementType, data, shape);
}

/**
 * Gives whole pages of a tensor of `allocatePages` back to the system. They read as zeros afterwards.
 *
 * @param firstByte A multiple of the page size; so is `numBytes`.
 * @throws EngineError `runtime_failed` if the system refuses.
 */
export function releasePages(tensor: Tensor, firstByte: number, numBytes: number): void {
  if (numBytes === 0) return;
  const address = addressOf(tensor.data) + BigInt(firstByte);
  if (requirePageCalls().madvise(address, numBytes, MADV_DONTNEED) === 0) return;
  throw new EngineError("runtime_failed", `The system does not take ${numBytes} bytes of the KV cache back.`);
}

function requirePageCalls(): PageCalls {
  const calls = findPageCalls();
  if (calls === null) throw new EngineError("runtime_failed", "This system takes no pages back.");
  return calls;
}

function findPageCalls(): PageCalls | null {
  pageCalls ??= lookUpPageCalls();
  return pageCalls;
}

function lookUpPageCalls(): PageCalls | null {
  if (platform() !== "linux") return null;
  try {
    if (readFileSync("/proc/sys/vm/overcommit_memory", "utf8").trim() === strictOvercommit) return null;
    const library = koffi.load(null);
    return {
      pageBytes: library.func("getpagesize", "int", [])(),
      madvise: library.func("madvise", "int", ["void *", "size_t", "int"]),
    };
  } catch {
    return null;
  }
}
