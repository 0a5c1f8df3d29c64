import type { CacheState, TurnStats } from '../ipc/types';
import { t } from '../i18n';
import { bytes, fixed, percent, speed } from '../text/format';

export interface Figure {
  id: keyof typeof t.compare.figure;
  value: string;
  /** What the value is of, in small. */
  note: string;
  /** Its size beside the other columns', for a bar; `null` where there is nothing to measure it by. */
  amount: number | null;
}

/** What a column took, as far as it is known; every figure has its place from the start. */
export function figures(cache: CacheState | null, stats: TurnStats | null): Figure[] {
  const none = '–';
  return [
    {
      id: 'hot',
      value: cache ? bytes(cache.hot_bytes) : none,
      note: cache ? t.compare.ofTokens(cache.hot_entries, cache.n_seen) : '',
      amount: cache?.hot_bytes ?? null,
    },
    {
      id: 'store',
      value: cache ? bytes(cache.store_bytes) : none,
      note: cache ? t.compare.keptHot(percent(cache.kept)) : '',
      amount: cache?.store_bytes ?? null,
    },
    {
      id: 'prefill',
      value: stats ? seconds(stats.prefill_s) : none,
      note: stats ? t.compare.tokens(stats.prefilled) : '',
      amount: stats?.prefill_s ?? null,
    },
    {
      id: 'ttft',
      value: stats ? seconds(stats.ttft_s) : none,
      note: '',
      amount: stats?.ttft_s ?? null,
    },
    {
      id: 'speed',
      value: stats ? speed(stats.tok_s) : none,
      note: stats ? t.compare.tokens(stats.generated) : '',
      amount: stats?.tok_s ?? null,
    },
  ];
}

export function seconds(s: number): string {
  return t.common.seconds(fixed(s, s < 9.95 ? 2 : 1));
}
