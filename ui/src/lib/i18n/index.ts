import { cache } from './en/cache';
import { preview } from './en/preview';

/** Sentences of the window, by area. */
export const t = { cache, preview };

export type Catalogue = typeof t;
