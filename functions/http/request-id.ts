/** Ids of requests that clients choose. They end up in headers, logs and answers. */

export const MAX_REQUEST_ID_LENGTH = 128;
export const requestIdPattern = /^[\w.:=+/-]+$/;

export function isRequestId(id: string): boolean {
  return id.length <= MAX_REQUEST_ID_LENGTH && requestIdPattern.test(id);
}
