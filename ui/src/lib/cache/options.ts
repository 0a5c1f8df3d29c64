import type { CacheOptions, KvType, PrefillMode, Preset } from '../ipc/types';

/** The presets in the order they are offered. */
export const PRESET_NAMES = ['conversation', 'document', 'code'] as const satisfies Preset[];

/** Options that are set as numbers. */
export type NumberKey = {
  [K in keyof CacheOptions]: CacheOptions[K] extends number | null ? K : never;
}[keyof CacheOptions];

export interface NumberField {
  key: Exclude<NumberKey, 'budget'>;
  min: number;
  max: number;
  step: number;
  /** May be empty, which leaves it to something else. */
  open?: boolean;
  /** The number shown is the value divided by this. */
  unit?: number;
}

const MiB = 2 ** 20;

export const NUMBERS: NumberField[] = [
  { key: 'sinks', min: 0, max: 1024, step: 1 },
  { key: 'recent', min: 16, max: 1_000_000, step: 1, open: true },
  { key: 'recent_share', min: 0, max: 1, step: 0.05, open: true },
  { key: 'chunk', min: 16, max: 8192, step: 16 },
  { key: 'evict_every', min: 1, max: 4096, step: 1 },
  { key: 'recall_share', min: 0, max: 1, step: 0.05 },
  { key: 'recall_every', min: 1, max: 100_000, step: 1, open: true },
  { key: 'store_limit', min: 0, max: 1 << 24, step: 64, open: true, unit: MiB },
];

export const PREFILL_MODES = ['auto', 'exact', 'streaming'] as const satisfies PrefillMode[];
export const KV_TYPES = ['f16', 'q8_0', 'f32'] as const satisfies KvType[];

/** A number that was typed, put into the bounds of its field; `undefined` where it is none. */
export function typed(field: NumberField, text: string): number | null | undefined {
  if (text.trim() === '') return field.open ? null : undefined;
  const shown = Number(text);
  if (!Number.isFinite(shown)) return undefined;
  const whole = field.step < 1 ? shown : Math.round(shown);
  return Math.min(field.max, Math.max(field.min, whole)) * (field.unit ?? 1);
}

/** A value as its field shows it. */
export function shown(field: NumberField, value: number | null): string {
  return value === null ? '' : String(value / (field.unit ?? 1));
}

/** What was stored, as far as it can be used; the rest is that of the preset. */
export function restored(preset: CacheOptions, stored: unknown, policies: string[]): CacheOptions {
  const options = { ...preset };
  if (typeof stored !== 'object' || stored === null) return options;
  const from = stored as Record<string, unknown>;
  for (const field of NUMBERS) {
    const value = from[field.key];
    if (value === null && field.open) Object.assign(options, { [field.key]: null });
    if (typeof value !== 'number') continue;
    const usable = typed(field, shown(field, value));
    if (typeof usable === 'number') Object.assign(options, { [field.key]: usable });
  }
  const { policy, kv, prefill, recall, guard } = from;
  if (typeof policy === 'string' && policies.includes(policy)) {
    options.policy = policy as CacheOptions['policy'];
  }
  options.kv = KV_TYPES.find((name) => name === kv) ?? options.kv;
  options.prefill = PREFILL_MODES.find((name) => name === prefill) ?? options.prefill;
  if (typeof recall === 'boolean') options.recall = recall;
  if (typeof guard === 'boolean') options.guard = guard;
  return options;
}

/** Whether something other than the budget differs. */
export function differs(options: CacheOptions, preset: CacheOptions): boolean {
  return (Object.keys(preset) as (keyof CacheOptions)[]).some(
    (key) => key !== 'budget' && options[key] !== preset[key],
  );
}
