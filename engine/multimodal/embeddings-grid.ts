/** The patches of a picture whose embeddings came with the request: their places in the prompt depend on them. */
import { EngineError } from "../contract/errors.ts";
import type { ImageGrid } from "../contract/generation-request.ts";
import type { UpdateItem } from "./multimodal-processor.ts";

/** As `image_grid_thw` of the vision encoder's inputs. */
export const gridField = "image_grid_thw";

export interface EmbeddingsGrid {
  readonly rows: number;
  readonly columns: number;
}

/**
 * Rows and columns of embeddings, each of which stands for `mergeSize` x `mergeSize` patches.
 *
 * @param count Embeddings of a grid.
 * @throws EngineError `invalid_image` that names the item, for a missing grid and for one that does not fit the
 * embeddings.
 */
export function embeddingsGrid(
  { grid, numEmbeddings }: Extract<UpdateItem, { readonly kind: "embeddings" }>,
  mergeSize: number,
  itemIndex: number,
  count: (grid: EmbeddingsGrid) => number = (grid) => grid.rows * grid.columns,
): EmbeddingsGrid {
  const refuse = (message: string): EngineError =>
    new EngineError("invalid_image", message, { parameter: `prompt.images[${itemIndex}]` });
  if (grid === null) {
    throw refuse(
      `Image embeddings of this model need their grid of patches. Send {"image_embeds": …, "image_grid_thw": [1, rows, columns]}.`,
    );
  }
  const [numTimes, numRows, numColumns] = grid;
  const rows = numRows / mergeSize;
  const columns = numColumns / mergeSize;
  const described = `image_grid_thw [${grid.join(", ")}]`;
  if (numTimes !== 1) throw refuse(`The ${described} has ${numTimes} pictures; a still picture has 1.`);
  if (!Number.isInteger(rows) || !Number.isInteger(columns)) {
    throw refuse(`The ${described} does not divide into squares of ${mergeSize} x ${mergeSize} patches.`);
  }
  const made = { rows, columns };
  if (count(made) !== numEmbeddings) {
    throw refuse(`The ${described} stands for ${count(made)} embeddings; the file has ${numEmbeddings}.`);
  }
  return made;
}

/** int64 [3]. */
export function gridTensor(grid: ImageGrid) {
  return { elementType: "int64", shape: [3], data: BigInt64Array.from(grid, BigInt) } as const;
}
