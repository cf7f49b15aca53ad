/** Names of the sizes in decoder graphs that are known at run time only; see `DecoderGraph`. */
export const batch = "B";
export const length = "S";
export const tokens = "N";
export const imageTokens = "M";
export const cacheLength = "maxLen";
export const blockColumns = "C";
export const numBlocks = "numBlocks";
export const poolRows = "P";
/** Tokens of all sequences in the cache, those of the run included. */
export const cachedTokens = "L";
