/** Raw HTTP, for requests that no client would send. */
import { once } from "node:events";
import { connect } from "node:net";
import type { Socket } from "node:net";

export async function openSocket(baseUrl: string): Promise<Socket> {
  const { hostname, port } = new URL(baseUrl);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  socket.on("error", () => {});
  return socket;
}

/** The head of a POST request, by default to the chat route. */
export function requestHead(
  contentLength: number,
  {
    path = "/v1/chat/completions",
    headers = [],
  }: { readonly path?: string; readonly headers?: readonly string[] } = {},
): string {
  return [
    `POST ${path} HTTP/1.1`,
    "Host: localhost",
    "Content-Type: application/json",
    `Content-Length: ${contentLength}`,
    ...headers,
    "",
    "",
  ].join("\r\n");
}

export interface RawAnswer {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Reads everything until the server closes the connection, as one answer. */
export async function readAnswer(socket: Socket): Promise<RawAnswer> {
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  if (!socket.closed) await once(socket, "close");
  const [head, ...rest] = Buffer.concat(chunks).toString().split("\r\n\r\n");
  const [statusLine, ...lines] = head!.split("\r\n");
  const headers = lines.map((line): [string, string] => {
    const [name, ...value] = line.split(":");
    return [name!.toLowerCase(), value.join(":").trim()];
  });
  return {
    status: Number(/^HTTP\/1\.1 (\d{3}) /.exec(statusLine!)?.[1]),
    headers: Object.fromEntries(headers),
    body: rest.join("\r\n\r\n"),
  };
}
