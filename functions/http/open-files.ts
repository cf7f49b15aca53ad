/** Divides the system's limit on open files among connections and everything else. */
import { readFileSync } from "node:fs";

export interface ConnectionShares {
  /** Connections of clients. */
  readonly maxNumClients: number;
  /** Connections to hosts of pictures. */
  readonly maxNumPictureHosts: number;
}

/**
 * For files, stores, queues and threads. They must not depend on clients: Node ends the process if it finds no
 * descriptor for the thread that limits the time of a chat template.
 */
const RESERVED = 128;
const SHARE_OF_PICTURE_HOSTS = 1 / 8;
/** With too low a limit, too: a health check must be answered. */
const MIN_NUM_CONNECTIONS = 16;

/** @param maxOpenFiles Infinity without a limit. */
export function connectionShares(maxOpenFiles = readMaxOpenFiles()): ConnectionShares {
  const maxNumPictureHosts = Math.max(MIN_NUM_CONNECTIONS, Math.floor(maxOpenFiles * SHARE_OF_PICTURE_HOSTS));
  if (maxOpenFiles === Number.POSITIVE_INFINITY) return { maxNumClients: maxOpenFiles, maxNumPictureHosts };
  return {
    maxNumClients: Math.max(MIN_NUM_CONNECTIONS, maxOpenFiles - maxNumPictureHosts - RESERVED),
    maxNumPictureHosts,
  };
}

/** Infinity if the system does not tell: elsewhere than on Linux. Node raises the limit to the hard one when it starts. */
function readMaxOpenFiles(): number {
  try {
    const [, limit] = /^Max open files\s+(\d+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return limit === undefined ? Number.POSITIVE_INFINITY : Number(limit);
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}
