import type { CacheOptions, CacheState, PolicyName } from '../ipc/types';

/** What suits most chats. The control `random` is for measurements and is not offered. */
export const RECOMMENDED: PolicyName[] = ['h2o'];

export const OTHERS: PolicyName[] = [
  'expected',
  'kvzip',
  'snapkv',
  'pyramidkv',
  'tova',
  'h2o-paper',
  'window',
  'full',
];

export const POLICIES: PolicyName[] = [...RECOMMENDED, ...OTHERS];

/** However small a share is asked for, the engine keeps this many of the newest. */
const MIN_RECENT = 16;

/** What snapkv and pyramidkv protect while a prompt is read: the queries that vote. */
const SNAP_WINDOW = 32;

/**
 * The first position that the policy keeps only because it is new. Some policies protect less while a prompt
 * is being read than while the answer is written.
 */
export function recentStart(options: CacheOptions, state: CacheState, reading: boolean): number {
  const budget = leastBudget(options.policy, state.budget);
  if (options.policy === 'full' || state.n_seen <= budget) return state.n_seen;
  return Math.max(0, state.n_seen - recentTokens(options, budget, reading));
}

function recentTokens(options: CacheOptions, budget: number, reading: boolean): number {
  const wanted =
    options.recent ??
    (options.recent_share === null ? null : Math.floor(options.recent_share * budget));
  const asked = (own: number) => Math.max(MIN_RECENT, wanted ?? Math.floor(own));
  switch (options.policy) {
    case 'full':
      return Infinity;
    case 'window':
      return Math.max(0, budget - options.sinks);
    case 'tova':
      return asked(MIN_RECENT);
    case 'expected':
    case 'kvzip':
      return asked(budget / 8);
    case 'snapkv':
    case 'pyramidkv':
      return reading ? SNAP_WINDOW : asked(budget / 2);
    case 'h2o':
    case 'h2o-paper':
    case 'random':
      return asked(budget / 2);
  }
}

/** The budget of the layer with the least room: only what that one protects too is whole. */
function leastBudget(policy: PolicyName, budget: number): number {
  if (policy !== 'pyramidkv' || budget <= SNAP_WINDOW) return budget;
  return SNAP_WINDOW + Math.round((budget - SNAP_WINDOW) / 20);
}
