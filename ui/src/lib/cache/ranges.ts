/** Positions `[start, end)`. Lists of ranges ascend and do not overlap. */
export type Range = [start: number, end: number];

/** Positions of `start..end` that lie in the ranges. */
export function overlap(ranges: Range[], start: number, end: number): number {
  let sum = 0;
  for (let i = firstAfter(ranges, start); i < ranges.length; i += 1) {
    const range = ranges[i];
    if (!range || range[0] >= end) break;
    sum += Math.max(0, Math.min(end, range[1]) - Math.max(start, range[0]));
  }
  return sum;
}

export function contains(ranges: Range[], position: number): boolean {
  return overlap(ranges, position, position + 1) === 1;
}

/** Index of the first range that ends after a position. */
function firstAfter(ranges: Range[], position: number): number {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ranges[middle]?.[1] ?? Infinity) <= position) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What of the ranges lies in none of the others. */
export function without(ranges: Range[], others: Range[]): Range[] {
  return ranges.flatMap((range) => {
    let rest: Range[] = [range];
    for (const [start, end] of others) {
      rest = rest.flatMap(([from, to]): Range[] => [
        [from, Math.min(to, start)],
        [Math.max(from, end), to],
      ]);
      rest = rest.filter(([from, to]) => from < to);
    }
    return rest;
  });
}
