/** The source of pictures and documents that a request names by the id of an uploaded file. */
import { checkImageBytes, collectBounded, EngineError, fetchAlways, untilAborted } from "../../engine/index.ts";
import type { FetchedImage, FetchIfChangedOptions, ImageSource } from "../../engine/index.ts";
import { fileIdScheme } from "../generation/references.ts";
import { StorageError } from "../storage/object-store.ts";
import type { Batches } from "./batches.ts";
import { DamagedRecordError } from "./damaged-records.ts";

type LoadFiles = () => Promise<Pick<Batches, "files">>;

/** @param loadBatches Returns undefined if the service has no store of files. */
export function createUploadedFileSource(loadBatches: () => LoadFiles | undefined): ImageSource {
  /** A file never changes, so its id is its validator. */
  async function read(
    id: string,
    { signal, maxImageBytes, tenant = "", onBytes, validator }: FetchIfChangedOptions,
  ): Promise<FetchedImage> {
    const load = loadBatches();
    if (load === undefined) {
      throw refused("The image was sent as the id of a file, but this service has no store of files: see BATCH_STORE.");
    }
    const { files } = await load();
    const file = await files.find(tenant, id);
    if (file === null) {
      const isExpired = await files.hasExpired(tenant, id);
      throw refused(isExpired ? `The image ${id} has expired.` : `The image ${shown(id)} is not an uploaded file.`);
    }
    checkImageBytes(file.bytes, maxImageBytes);
    if (validator === id) return { kind: "unchanged" };
    const content = await files.readContent(file);
    if (content === null) throw refused(`The image ${id} was deleted while it was read.`);
    const bytes = await collectBounded(content.chunks, {
      maxImageBytes,
      onBytes(numBytes) {
        // Nothing waits for the bytes any more.
        signal.throwIfAborted();
        onBytes?.(numBytes);
      },
    });
    return { kind: "fetched", bytes, validator: id };
  }

  async function fetchIfChanged(reference: string, options: FetchIfChangedOptions): Promise<FetchedImage> {
    options.signal.throwIfAborted();
    const id = reference.slice(fileIdScheme.length + 1);
    const reading = read(id, options).catch((error: unknown) => {
      throw nameFailure(id, error);
    });
    return untilAborted(reading, options.signal);
  }

  return { schemes: [fileIdScheme], fetch: fetchAlways(fetchIfChanged), fetchIfChanged };
}

function refused(message: string): EngineError {
  return new EngineError("invalid_image_reference", message);
}

/** An invalid id may be long. */
function shown(id: string): string {
  return JSON.stringify(id.slice(0, 60));
}

function nameFailure(id: string, cause: unknown): unknown {
  if (cause instanceof StorageError) {
    const message = `The image ${id} is unreachable: the store of files does not work.`;
    return new EngineError("image_unreachable", message, { cause, isTransient: true });
  }
  if (!(cause instanceof DamagedRecordError)) return cause;
  return new EngineError("image_unreachable", `The record of the image ${id} is damaged; upload it again.`, { cause });
}
