import { recentStart } from '../cache/policies';
import type { CacheOptions } from '../ipc/types';
import type { Session } from '../state/session.svelte';
import type { BinInput } from './bins';

const NOTHING: BinInput = {
  kept: new Uint8Array(),
  seen: 0,
  pinned: [],
  forgotten: [],
  total: 0,
  recentFrom: 0,
};

/** What is held of a conversation now. The map in it is a view that is good until the next change. */
export function heldOf(session: Session | undefined, options: CacheOptions): BinInput {
  if (!session) return NOTHING;
  const { cache } = session;
  return {
    kept: session.kept.values,
    seen: cache?.n_seen ?? 0,
    pinned: session.pinned,
    forgotten: session.forgotten,
    total: session.total,
    // Past its prompt, a policy may protect more.
    recentFrom: cache
      ? recentStart(session.options ?? options, cache, session.prefill !== null)
      : 0,
  };
}
