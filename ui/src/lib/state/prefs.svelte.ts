import { differs, PRESET_NAMES, restored } from '../cache/options';
import { POLICIES } from '../cache/policies';
import {
  chooseLanguage,
  chosenLanguage,
  LANGUAGES,
  type LanguageChoice,
} from '../i18n/language.svelte';
import { PRESETS, type CacheOptions, type Preset, type Sampling } from '../ipc/types';

export const THEMES = ['system', 'light', 'dark'] as const;
export type Theme = (typeof THEMES)[number];

export const FONT_SIZES = ['small', 'normal', 'large', 'huge'] as const;
export type FontSize = (typeof FONT_SIZES)[number];

/** Numbers that a person sets under *Advanced*; `seed` of `null` takes a new one for each answer. */
export interface SamplingPrefs extends Omit<Sampling, 'seed'> {
  seed: number | null;
  max_tokens: number;
}

export const DEFAULT_SAMPLING: SamplingPrefs = {
  temperature: 0.7,
  top_p: 0.95,
  top_k: 40,
  min_p: 0.05,
  repetition_penalty: 1.0,
  seed: null,
  max_tokens: 1024,
};

interface Stored {
  theme: Theme;
  language: LanguageChoice;
  fontSize: FontSize;
  systemPrompt: string;
  sidebar: boolean;
  inspector: boolean;
  preset: Preset;
  cache: CacheOptions;
  budget: number | null;
  shadeThread: boolean;
  shadePages: boolean;
  sampling: SamplingPrefs;
}

const KEY = 'cistern.prefs';

/** What the window remembers between starts. */
export class Prefs {
  theme = $state<Theme>('system');
  fontSize = $state<FontSize>('normal');
  /** Goes before the first question of a new chat. */
  systemPrompt = $state('');
  sidebar = $state(true);
  inspector = $state(true);
  preset = $state<Preset>('conversation');
  /** As the preset has it, with what was changed since; its budget is not used. */
  cache = $state<CacheOptions>({ ...PRESETS.conversation });
  /** Tokens; `null` follows the free memory. No preset changes it. */
  budget = $state<number | null>(null);
  /** Whether the words of the thread are shaded by what is held of them, and those of the preview. */
  shadeThread = $state(false);
  shadePages = $state(true);
  sampling = $state<SamplingPrefs>({ ...DEFAULT_SAMPLING });

  constructor(private readonly storage: Pick<Storage, 'getItem' | 'setItem'>) {
    try {
      const stored: unknown = JSON.parse(this.storage.getItem(KEY) ?? '{}');
      this.#take(typeof stored === 'object' && stored !== null ? stored : {});
    } catch {
      // What cannot be read costs the memory of preferences, nothing else.
      this.#take({});
    }
  }

  get language(): LanguageChoice {
    return chosenLanguage();
  }

  set language(language: LanguageChoice) {
    chooseLanguage(language);
  }

  get cacheOptions(): CacheOptions {
    return { ...$state.snapshot(this.cache), budget: this.budget };
  }

  /** Something was changed since the preset was chosen. */
  get changed(): boolean {
    return differs(this.cache, PRESETS[this.preset]);
  }

  /** Takes a preset as it is. */
  choose(preset: Preset): void {
    this.preset = preset;
    this.cache = { ...PRESETS[preset] };
    this.save();
  }

  /** What goes with the next question. */
  get nextSampling(): Sampling {
    const { max_tokens: _, ...sampling } = $state.snapshot(this.sampling);
    return { ...sampling, seed: sampling.seed ?? Math.floor(Math.random() * 2 ** 32) };
  }

  /** Everything, as it is kept. */
  get stored(): Stored {
    return {
      theme: this.theme,
      language: this.language,
      fontSize: this.fontSize,
      systemPrompt: this.systemPrompt,
      sidebar: this.sidebar,
      inspector: this.inspector,
      preset: this.preset,
      cache: $state.snapshot(this.cache),
      budget: this.budget,
      shadeThread: this.shadeThread,
      shadePages: this.shadePages,
      sampling: $state.snapshot(this.sampling),
    };
  }

  save(): void {
    try {
      this.storage.setItem(KEY, JSON.stringify(this.stored));
    } catch {
      // A full or forbidden storage costs the memory of a preference, nothing else.
    }
  }

  /** Back to the defaults, all but which panels are open. */
  reset(): void {
    const { sidebar, inspector } = this;
    this.restore({ sidebar, inspector });
  }

  restore(stored: Partial<Stored>): void {
    this.#take(stored);
    this.save();
  }

  /** What is missing or no value of its kind is the default. */
  #take(stored: Partial<Stored>): void {
    this.theme = THEMES.find((known) => known === stored.theme) ?? 'system';
    this.language =
      [...LANGUAGES, 'system' as const].find((known) => known === stored.language) ?? 'system';
    this.fontSize = FONT_SIZES.find((known) => known === stored.fontSize) ?? 'normal';
    this.systemPrompt = typeof stored.systemPrompt === 'string' ? stored.systemPrompt : '';
    this.sidebar = stored.sidebar !== false;
    this.inspector = stored.inspector !== false;
    this.preset = PRESET_NAMES.find((name) => name === stored.preset) ?? 'conversation';
    this.cache = restored(PRESETS[this.preset], stored.cache, POLICIES);
    this.budget = isNumber(stored.budget) && stored.budget > 0 ? stored.budget : null;
    this.shadeThread = stored.shadeThread === true;
    this.shadePages = stored.shadePages !== false;
    const sampling = { ...DEFAULT_SAMPLING };
    for (const key of Object.keys(sampling) as (keyof SamplingPrefs)[]) {
      const value = stored.sampling?.[key];
      if (isNumber(value)) sampling[key] = value;
    }
    this.sampling = sampling;
  }
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
