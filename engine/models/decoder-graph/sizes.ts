/** Names of sizes in decoder graphs that are known only at run time; see `DecoderGraph`. */
export const batch = "B";
export const length = "S";
export const tokens = "N";
/** The tokens of `DecoderInputs.tail`: of each sequence, and of all. */
export const tailLength = "tailS";
export const tailTokens = "tailN";
export const imageTokens = "M";
/** The image tokens and one more; see `withOneMore`. */
export const oneMoreImageToken = "M + 1";
/** Keys that image tokens see: those of the sequence in a run with images, otherwise 1. */
export const imageKeys = "T";
export const cacheLength = "maxLen";
/** Tokens of a chunk's sequence before the chunk, and with it. */
export const pastTokens = "pastLen";
export const presentTokens = "presentLen";
export const blockColumns = "C";
export const numBlocks = "numBlocks";
export const poolRows = "P";
/** Tokens of all sequences in the cache, including those of the run. */
export const cachedTokens = "L";
/** Tokens of the run's longest sequence, in packed runs of recurrent layers. */
export const longestRun = "T";
/** Rows of recurrent states, in packed runs. */
export const stateRows = "numRows";
