import { differs, PRESET_NAMES, restored } from '../cache/options';
import { POLICIES } from '../cache/policies';
import { PRESETS, type CacheOptions, type Preset, type Sampling } from '../ipc/types';

export type Theme = 'system' | 'light' | 'dark';

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
    this.#load();
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

  save(): void {
    const stored: Stored = {
      theme: this.theme,
      sidebar: this.sidebar,
      inspector: this.inspector,
      preset: this.preset,
      cache: $state.snapshot(this.cache),
      budget: this.budget,
      shadeThread: this.shadeThread,
      shadePages: this.shadePages,
      sampling: $state.snapshot(this.sampling),
    };
    try {
      this.storage.setItem(KEY, JSON.stringify(stored));
    } catch {
      // A full or forbidden storage costs the memory of a preference, nothing else.
    }
  }

  #load(): void {
    let stored: Partial<Stored>;
    try {
      stored = JSON.parse(this.storage.getItem(KEY) ?? '{}') as Partial<Stored>;
    } catch {
      return;
    }
    if (stored.theme && ['system', 'light', 'dark'].includes(stored.theme))
      this.theme = stored.theme;
    if (typeof stored.sidebar === 'boolean') this.sidebar = stored.sidebar;
    if (typeof stored.inspector === 'boolean') this.inspector = stored.inspector;
    const preset = PRESET_NAMES.find((name) => name === stored.preset);
    if (preset) this.preset = preset;
    const policies = POLICIES.map(({ name }) => name);
    this.cache = restored(PRESETS[this.preset], stored.cache, policies);
    if (typeof stored.budget === 'number' && stored.budget > 0) this.budget = stored.budget;
    if (typeof stored.shadeThread === 'boolean') this.shadeThread = stored.shadeThread;
    if (typeof stored.shadePages === 'boolean') this.shadePages = stored.shadePages;
    for (const key of Object.keys(DEFAULT_SAMPLING) as (keyof SamplingPrefs)[]) {
      const value = stored.sampling?.[key];
      if (typeof value === 'number' && Number.isFinite(value)) this.sampling[key] = value;
    }
  }
}
