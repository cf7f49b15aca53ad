/** A self-signed certificate, created on demand so that tests use real TLS without a key in the repository. */
import { generateKeyPairSync, sign } from "node:crypto";

export interface Certificate {
  /** PEM. */
  readonly key: string;
  readonly cert: string;
}

const dayMs = 86_400_000;

/** Valid for 127.0.0.1, [::1], localhost and images.test, from yesterday to tomorrow: X.509 v3 in DER, ECDSA P-256. */
export function makeCertificate(): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "P-256" });
  const ecdsaWithSha256 = sequence(objectId("2a8648ce3d040302"));
  const name = sequence(der(0x31, sequence(objectId("550403"), der(0x0c, Buffer.from("fovea-test")))));
  const alternativeNames = sequence(
    der(0x82, Buffer.from("localhost")),
    der(0x82, Buffer.from("images.test")),
    der(0x87, Buffer.from([127, 0, 0, 1])),
    der(0x87, Buffer.concat([Buffer.alloc(15), Buffer.from([1])])),
  );
  const content = sequence(
    der(0xa0, der(0x02, Buffer.from([2]))),
    der(0x02, Buffer.from([1])),
    ecdsaWithSha256,
    name,
    sequence(utcTime(Date.now() - dayMs), utcTime(Date.now() + dayMs)),
    name,
    publicKey.export({ type: "spki", format: "der" }),
    der(0xa3, sequence(sequence(objectId("551d11"), der(0x04, alternativeNames)))),
  );
  const signature = sign("sha256", content, privateKey);
  const certificate = sequence(content, ecdsaWithSha256, der(0x03, Buffer.from([0]), signature));
  const lines = certificate.toString("base64").match(/.{1,64}/g) ?? [];
  return {
    key: privateKey.export({ type: "pkcs8", format: "pem" }).toString(),
    cert: `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`,
  };
}

/** Tag, length and concatenated contents. */
function der(tag: number, ...contents: readonly Uint8Array[]): Buffer {
  const content = Buffer.concat(contents);
  const length = content.byteLength;
  const header = length < 0x80 ? [tag, length] : [tag, 0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from(header), content]);
}

function sequence(...contents: readonly Uint8Array[]): Buffer {
  return der(0x30, ...contents);
}

function objectId(hex: string): Buffer {
  return der(0x06, Buffer.from(hex, "hex"));
}

function utcTime(timeMs: number): Buffer {
  const digits = new Date(timeMs).toISOString().replace(/[-:T]/g, "").slice(2, 14);
  return der(0x17, Buffer.from(`${digits}Z`));
}
