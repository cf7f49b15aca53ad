/** Compressed archives in parts of a bounded size, and the files by which the other side checks and joins them. */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import type { Hash } from "node:crypto";
import { once } from "node:events";
import { createWriteStream, writeFileSync } from "node:fs";
import type { WriteStream } from "node:fs";
import { join } from "node:path";
import { Readable, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { constants, createGzip, createZstdCompress } from "node:zlib";

export interface PackPart {
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface Archive {
  readonly name: string;
  /** `gzip` is one file, `zstd` a tar archive. */
  readonly compression: "gzip" | "zstd";
  /** Before compression. */
  readonly contentBytes: number;
  readonly parts: readonly PackPart[];
}

export interface ArchiveOptions {
  /** Where the parts go. */
  readonly folder: string;
  readonly partBytes: number;
  readonly onProgress?: (contentBytes: number) => void;
}

/**
 * GPU code is compressed already. Long matches save 0.7 % of the provider's 172 MiB, which makes four parts of five;
 * higher levels save less and take several times as long. A window of 2^27 bytes is the largest that decoders take
 * without being asked to.
 */
const zstdParams = {
  [constants.ZSTD_c_compressionLevel]: 9,
  [constants.ZSTD_c_enableLongDistanceMatching]: 1,
  [constants.ZSTD_c_windowLog]: 27,
};

/** The folder's content as a tar archive. Needs GNU tar. */
export async function archiveFolder(name: string, source: string, options: ArchiveOptions): Promise<Archive> {
  const reproducible = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"];
  const tar = spawn("tar", ["-C", source, ...reproducible, "-cf", "-", "."], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = once(tar, "close");
  const compress = createZstdCompress({ params: zstdParams });
  const parts = new PartWriter(`${name}.tar.zst`, options);
  const counter = new ByteCounter(options.onProgress);
  await pipeline(tar.stdout, counter.through, compress, parts);
  const [code] = await ended;
  if (code !== 0) throw new Error(`tar ended with ${String(code)}.`);
  return { name, compression: "zstd", contentBytes: counter.total, parts: parts.parts };
}

/** One file, compressed so that a machine without anything but a shell can unpack it. */
export async function archiveFile(name: string, content: Readable, options: ArchiveOptions): Promise<Archive> {
  const parts = new PartWriter(`${name}.gz`, options);
  const counter = new ByteCounter(options.onProgress);
  await pipeline(content, counter.through, createGzip({ level: constants.Z_BEST_COMPRESSION }), parts);
  return { name, compression: "gzip", contentBytes: counter.total, parts: parts.parts };
}

/** `MANIFEST.json` for people, `SHA256SUMS` and `ARCHIVES` for the shell script. */
export function writeManifest(folder: string, archives: readonly Archive[], facts: object): void {
  const parts = archives.flatMap((archive) => archive.parts);
  const bytes = parts.reduce((sum, part) => sum + part.bytes, 0);
  writeFileSync(join(folder, "MANIFEST.json"), `${JSON.stringify({ ...facts, bytes, archives }, null, 2)}\n`);
  writeFileSync(join(folder, "SHA256SUMS"), parts.map(({ name, sha256 }) => `${sha256}  ${name}\n`).join(""));
  const rows = archives.map(({ name, compression, parts: own }) =>
    [name, compression, ...own.map((part) => part.name)].join(" "),
  );
  writeFileSync(join(folder, "ARCHIVES"), rows.map((row) => `${row}\n`).join(""));
}

/** Divides parts into as few groups of at most `maxBytes` as taking the largest first finds. */
export function groupParts<Part extends Pick<PackPart, "name" | "bytes">>(
  parts: readonly Part[],
  maxBytes: number,
): readonly (readonly Part[])[] {
  const groups: { bytes: number; readonly parts: Part[] }[] = [];
  for (const part of parts.toSorted((left, right) => right.bytes - left.bytes)) {
    const group = groups.find(({ bytes }) => bytes + part.bytes <= maxBytes);
    if (group === undefined) groups.push({ bytes: part.bytes, parts: [part] });
    else {
      group.parts.push(part);
      group.bytes += part.bytes;
    }
  }
  return groups.map((group) => group.parts);
}

/** Passes a stream on; mutable. */
class ByteCounter {
  total = 0;
  readonly #onProgress: ArchiveOptions["onProgress"];

  constructor(onProgress: ArchiveOptions["onProgress"]) {
    this.#onProgress = onProgress;
  }

  readonly through = (chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> => this.#count(chunks);

  async *#count(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
    for await (const chunk of chunks) {
      this.total += chunk.length;
      this.#onProgress?.(this.total);
      yield chunk;
    }
  }
}

interface OpenPart {
  readonly name: string;
  readonly stream: WriteStream;
  readonly hash: Hash;
  bytes: number;
}

/** Writes a stream as files of `partBytes` each, the last one smaller; mutable. */
class PartWriter extends Writable {
  readonly parts: PackPart[] = [];
  readonly #name: string;
  readonly #folder: string;
  readonly #partBytes: number;
  #open: OpenPart | null = null;

  constructor(name: string, { folder, partBytes }: ArchiveOptions) {
    super();
    this.#name = name;
    this.#folder = folder;
    this.#partBytes = partBytes;
  }

  override _write(chunk: Buffer, _encoding: string, callback: (error?: Error | null) => void): void {
    settle(this.#append(chunk), callback);
  }

  override _final(callback: (error?: Error | null) => void): void {
    settle(this.#closePart(), callback);
  }

  async #append(chunk: Buffer): Promise<void> {
    for (let rest = chunk; rest.length > 0;) {
      this.#open ??= this.#openPart();
      const piece = rest.subarray(0, this.#partBytes - this.#open.bytes);
      this.#open.hash.update(piece);
      this.#open.bytes += piece.length;
      if (!this.#open.stream.write(piece)) await once(this.#open.stream, "drain");
      rest = rest.subarray(piece.length);
      if (this.#open.bytes === this.#partBytes) await this.#closePart();
    }
  }

  #openPart(): OpenPart {
    const name = `${this.#name}.${String(this.parts.length).padStart(2, "0")}`;
    return { name, stream: createWriteStream(join(this.#folder, name)), hash: createHash("sha256"), bytes: 0 };
  }

  async #closePart(): Promise<void> {
    if (this.#open === null) return;
    const { name, stream, hash, bytes } = this.#open;
    this.#open = null;
    stream.end();
    await once(stream, "close");
    this.parts.push({ name, bytes, sha256: hash.digest("hex") });
  }
}

function settle(work: Promise<void>, callback: (error?: Error | null) => void): void {
  void (async () => {
    try {
      await work;
    } catch (error) {
      return callback(error as Error);
    }
    callback();
  })();
}
