import { en } from './en';
import { language, type Language } from './language.svelte';
import { zh } from './zh';

/** Every sentence of the window. English is the original; the others are typed by it. */
export type Catalogue = typeof en;

export const CATALOGUES: Record<Language, Catalogue> = { en, zh };

/**
 * The sentences in the chosen language. Read in a template, `$derived` or effect it follows the choice; what is read
 * elsewhere is in the language of that moment.
 */
export const t = Object.defineProperties(
  {},
  Object.fromEntries(
    Object.keys(en).map((area) => [
      area,
      { enumerable: true, get: () => CATALOGUES[language()][area as keyof Catalogue] },
    ]),
  ),
) as Readonly<Catalogue>;
