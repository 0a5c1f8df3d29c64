import { POLICIES } from '../cache/policies';
import type { CacheOptions, PolicyName, Sampling } from '../ipc/types';

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
  policy: PolicyName;
  budget: number | null;
  recall: boolean;
  sampling: SamplingPrefs;
}

const KEY = 'cistern.prefs';

/** What the window remembers between starts. */
export class Prefs {
  theme = $state<Theme>('system');
  sidebar = $state(true);
  inspector = $state(true);
  policy = $state<PolicyName>('h2o');
  /** Tokens; `null` follows the free memory. */
  budget = $state<number | null>(null);
  /** Whether each question brings back what it asks for. */
  recall = $state(true);
  sampling = $state<SamplingPrefs>({ ...DEFAULT_SAMPLING });

  constructor(private readonly storage: Pick<Storage, 'getItem' | 'setItem'>) {
    this.#load();
  }

  get cacheOptions(): CacheOptions {
    return {
      policy: this.policy,
      budget: this.budget,
      sinks: 4,
      recent: null,
      chunk: 512,
      evict_every: 64,
      kv: 'f16',
      prefill: 'auto',
      recall: this.recall,
      recall_share: 0.5,
      recall_every: null,
      store_limit: null,
    };
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
      policy: this.policy,
      budget: this.budget,
      recall: this.recall,
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
    const policy = POLICIES.find(({ name }) => name === stored.policy);
    if (policy) this.policy = policy.name;
    if (typeof stored.budget === 'number' && stored.budget > 0) this.budget = stored.budget;
    if (typeof stored.recall === 'boolean') this.recall = stored.recall;
    for (const key of Object.keys(DEFAULT_SAMPLING) as (keyof SamplingPrefs)[]) {
      const value = stored.sampling?.[key];
      if (typeof value === 'number' && Number.isFinite(value)) this.sampling[key] = value;
    }
  }
}
