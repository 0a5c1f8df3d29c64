import type { CacheOptions, CacheState, PolicyName } from '../ipc/types';

export interface Policy {
  name: PolicyName;
  title: string;
  /** One plain sentence. */
  says: string;
}

/** What suits most chats. The control `random` is for measurements and is not offered. */
export const RECOMMENDED: Policy[] = [
  {
    name: 'h2o',
    title: 'h2o',
    says: 'Keeps the newest half and, of the rest, what got the most attention for its age.',
  },
];

export const OTHERS: Policy[] = [
  {
    name: 'expected',
    title: 'expected',
    says: 'Keeps what later questions are likely to look at: for a document with many questions.',
  },
  {
    name: 'kvzip',
    title: 'kvzip',
    says: 'Keeps what it takes to repeat the text: for documents too, but reading takes twice as long.',
  },
  {
    name: 'snapkv',
    title: 'snapkv',
    says: 'Keeps what the end of the prompt looks at: for one question about one text.',
  },
  {
    name: 'pyramidkv',
    title: 'pyramidkv',
    says: 'As snapkv, with more room in the lower layers of the model.',
  },
  {
    name: 'tova',
    title: 'tova',
    says: 'Keeps what the newest token looks at, and the last few tokens.',
  },
  {
    name: 'h2o-paper',
    title: 'h2o-paper',
    says: 'As published: attention added up over time, which favours early text.',
  },
  {
    name: 'window',
    title: 'window',
    says: 'Keeps the first few tokens and the newest, and nothing between.',
  },
  {
    name: 'full',
    title: 'full',
    says: 'Keeps everything: nothing is lost, and memory grows with every token.',
  },
];

export const POLICIES: Policy[] = [...RECOMMENDED, ...OTHERS];

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
