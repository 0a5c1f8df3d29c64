import { overlap, type Range } from './ranges';

/** How much of something is pinned, in the words of `aria-pressed`. */
export type Pressed = 'true' | 'false' | 'mixed';

/** What a person asked to pin or to unpin, until the worker says that it is so. */
export interface PinWish {
  range: Range;
  pinned: boolean;
}

export function pressed(ranges: Range[], pinned: Range[], wishes: PinWish[]): Pressed {
  const wish = wishFor(ranges, wishes);
  if (wish) return wish.pinned ? 'true' : 'false';
  let all = 0;
  let held = 0;
  for (const [start, end] of ranges) {
    all += end - start;
    held += overlap(pinned, start, end);
  }
  return held === 0 ? 'false' : held === all ? 'true' : 'mixed';
}

/** The newest wish that speaks of all of it. */
export function wishFor(ranges: Range[], wishes: PinWish[]): PinWish | undefined {
  const covers = ({ range: [start, end] }: PinWish) =>
    ranges.every((range) => start <= range[0] && range[1] <= end);
  return ranges.length > 0 ? wishes.findLast(covers) : undefined;
}

/** The wishes that are not yet true. */
export function openWishes(wishes: PinWish[], pinned: Range[]): PinWish[] {
  // What the worker pins by itself may stay within a passage that was unpinned.
  return wishes.filter(
    ({ range: [start, end], pinned: wished }) =>
      wished !== (overlap(pinned, start, end) === end - start),
  );
}
