/** Real web servers on loopback for tests of what fetches images: TLS with a certificate made on the spot, and plain. */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer as createPlainServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface WebServer {
  /** `127.0.0.1:port`. */
  readonly host: string;
  readonly port: number;
  /** Connections opened so far. */
  numConnections(): number;
  stop(): Promise<void>;
}

export interface Certificate {
  readonly key: string;
  readonly cert: string;
}

/** Valid for 127.0.0.1, [::1], localhost and images.test. */
export function makeCertificate(): Certificate {
  const folder = mkdtempSync(join(tmpdir(), "fovea-certificate-"));
  try {
    const names = "subjectAltName=IP:127.0.0.1,IP:::1,DNS:localhost,DNS:images.test";
    execFileSync(
      "openssl",
      ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"].concat([
        "-subj",
        "/CN=fovea-test",
        "-addext",
        names,
        "-keyout",
        "key.pem",
        "-out",
        "cert.pem",
      ]),
      { cwd: folder, stdio: "pipe" },
    );
    return { key: readFileSync(join(folder, "key.pem"), "utf8"), cert: readFileSync(join(folder, "cert.pem"), "utf8") };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** On a free port of 127.0.0.1; without a certificate it speaks plain HTTP. */
export async function startWebServer(listener: RequestListener, certificate: Certificate | null): Promise<WebServer> {
  const server = certificate === null ? createPlainServer(listener) : createTlsServer({ ...certificate }, listener);
  let numConnections = 0;
  server.on("connection", () => numConnections++);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    host: `127.0.0.1:${port}`,
    port,
    numConnections: () => numConnections,
    async stop() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
