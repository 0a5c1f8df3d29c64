import type { CacheOptions, CacheState, Gauge } from '../../src/lib/ipc/types';

export const OPTIONS: CacheOptions = {
  policy: 'h2o',
  budget: 200,
  sinks: 4,
  recent: null,
  recent_share: null,
  chunk: 512,
  evict_every: 64,
  kv: 'f16',
  prefill: 'auto',
  recall: true,
  recall_share: 0.5,
  recall_every: null,
  guard: true,
  store_limit: null,
};

export const CACHE: CacheState = {
  n_seen: 1000,
  budget: 200,
  auto: false,
  hot_entries: 200,
  hot_bytes: 0,
  hot_peak_bytes: 0,
  full_bytes: 0,
  kept: 0.2,
  past_context: false,
  store_bytes: 0,
  store_limit: 0,
  pinned: 0,
};

export const GAUGE: Gauge = {
  kind: 'vram',
  name: 'A card',
  total: null,
  used: null,
  weights: 5,
  kv_hot: 0,
  kv_store: 0,
  scratch: null,
  other: null,
  room: null,
};
