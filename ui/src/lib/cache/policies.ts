import type { CacheOptions, CacheState, PolicyName } from '../ipc/types';

export interface Policy {
  name: PolicyName;
  title: string;
  /** One plain sentence. */
  says: string;
}

export const POLICIES: Policy[] = [
  {
    name: 'h2o',
    title: 'h2o',
    says: 'Keeps the newest half and, of the rest, what got the most attention for its age.',
  },
  {
    name: 'h2o-paper',
    title: 'h2o-paper',
    says: 'As published: attention added up over time, which favours early text.',
  },
  {
    name: 'window',
    title: 'window',
    says: 'Keeps the first few tokens and the newest; forgets all between.',
  },
  {
    name: 'full',
    title: 'full',
    says: 'Keeps everything: nothing is lost, and memory grows with every token.',
  },
];

/** The first position that the policy keeps only because it is new. */
export function recentStart(options: CacheOptions, state: CacheState): number {
  if (options.policy === 'full' || state.n_seen <= state.budget) return state.n_seen;
  const share =
    options.policy === 'window'
      ? Math.max(0, state.budget - options.sinks)
      : Math.floor(state.budget / 2);
  return Math.max(0, state.n_seen - (options.recent ?? share));
}
