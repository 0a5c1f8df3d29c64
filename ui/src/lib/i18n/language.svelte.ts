/** The languages that the window speaks. */
export const LANGUAGES = ['en', 'zh'] as const;
export type Language = (typeof LANGUAGES)[number];

/** What a person may choose; `system` takes the first language of the system that the window speaks. */
export type LanguageChoice = 'system' | Language;

/** For `Intl` and for the attribute `lang`. */
const LOCALES: Record<Language, string> = { en: 'en-US', zh: 'zh-CN' };

let choice = $state<LanguageChoice>('system');

export const chosenLanguage = (): LanguageChoice => choice;

export function chooseLanguage(next: LanguageChoice): void {
  choice = next;
}

/** The language that is spoken now. */
export const language = (): Language => (choice === 'system' ? ofSystem() : choice);

export const locale = (): string => LOCALES[language()];

function ofSystem(): Language {
  // Where there is no window, as in tests of plain modules, there is no navigator, or half of one.
  const { navigator } = globalThis as { navigator?: { languages?: readonly string[] } };
  const tags = navigator?.languages ?? [];
  for (const tag of tags) {
    const spoken = LANGUAGES.find((language) => tag.toLowerCase().split(/[-_]/)[0] === language);
    if (spoken) return spoken;
  }
  return 'en';
}
