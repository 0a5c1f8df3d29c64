import { contains, type Range } from '../cache/ranges';
import { t } from '../i18n';
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
  const says = t.heatmap.states;
  if (position >= Math.min(held.kept.length, held.seen)) return says.unread;
  const kept = (held.kept[position] ?? 0) / 255;
  if (kept === 0) return contains(held.forgotten, position) ? says.forgotten : says.store;
  const share = says.kept(percent(kept));
  if (contains(held.pinned, position)) return `${share} · ${says.pinned}`;
  return position >= recentFrom ? `${share} · ${says.recent}` : share;
}
