import { contains, type Range } from '../cache/ranges';
import { percent } from '../text/format';

/** What the worker says of the positions of a context. */
export interface Held {
  /** Kept fraction of every position, one byte each. */
  kept: Uint8Array;
  /** Tokens that have been through the model. */
  seen: number;
  pinned: Range[];
  /** Neither in the hot cache nor in the store. */
  forgotten: Range[];
}

/** What is held of one position, in the words of the legend. */
export function stateAt(position: number, held: Held, recentFrom: number): string {
  if (position >= Math.min(held.kept.length, held.seen)) return 'not read yet';
  const kept = (held.kept[position] ?? 0) / 255;
  if (kept === 0) return contains(held.forgotten, position) ? 'forgotten' : 'in store only';
  const share = `kept ${percent(kept)}`;
  if (contains(held.pinned, position)) return `${share} · pinned`;
  return position >= recentFrom ? `${share} · recent` : share;
}
