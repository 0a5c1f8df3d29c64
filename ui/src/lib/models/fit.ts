import type { ModelMemory } from '../ipc/types';

/** Above this share of the room, little is left for the system and for what a long prompt takes for a moment. */
const TIGHT = 0.85;

/** What the engine's automatic budget may take of the room, and the least that it takes. */
const AUTO_SHARE = 0.5;
const AUTO_LEAST = 256;

export type Verdict = 'fits' | 'tight' | 'too-big' | 'unknown';

/** Bytes; `null` where they cannot be known. */
export interface Fit {
  needs: number | null;
  room: number | null;
  verdict: Verdict;
}

/**
 * Whether a model fits the room that is measured now, with a budget in tokens; `null` follows the free memory.
 * More than the trained context is never held.
 */
export function fit(
  memory: ModelMemory | null,
  room: number | null,
  budget: number | null,
  context: number | null,
): Fit {
  if (!memory) return { needs: null, room, verdict: 'unknown' };
  const most = context ?? Number.POSITIVE_INFINITY;
  const wanted = budget ?? auto(memory, room, most);
  const needs = memory.fixed + memory.per_token * Math.min(wanted, most);
  if (!Number.isFinite(needs)) return { needs: null, room, verdict: 'unknown' };
  if (room === null || room <= 0) return { needs, room: null, verdict: 'unknown' };
  const share = needs / room;
  return { needs, room, verdict: share > 1 ? 'too-big' : share > TIGHT ? 'tight' : 'fits' };
}

function auto({ fixed, per_token }: ModelMemory, room: number | null, context: number): number {
  const left = Math.max(0, (room ?? 0) - fixed) * AUTO_SHARE;
  return Math.min(
    Math.max(AUTO_LEAST, Math.floor(left / per_token)),
    Math.max(AUTO_LEAST, context),
  );
}
