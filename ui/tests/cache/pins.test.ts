import { describe, expect, test } from 'vitest';
import { openWishes, pressed } from '../../src/lib/cache/pins';
import { contains, overlap, type Range } from '../../src/lib/cache/ranges';

const pinned: Range[] = [
  [0, 10],
  [20, 30],
  [30, 35],
];

test('ranges know what lies in them', () => {
  expect(overlap(pinned, 5, 25)).toBe(10);
  expect(overlap(pinned, 20, 35)).toBe(15);
  expect(overlap(pinned, 40, 50)).toBe(0);
  expect(overlap([], 0, 50)).toBe(0);
  expect([9, 10, 20, 34, 35].map((p) => contains(pinned, p))).toEqual([
    true,
    false,
    true,
    true,
    false,
  ]);
});

describe('the button of a passage', () => {
  test('is pressed, not pressed, or both in part', () => {
    expect(pressed([[20, 35]], pinned, [])).toBe('true');
    expect(pressed([[10, 20]], pinned, [])).toBe('false');
    expect(pressed([[5, 15]], pinned, [])).toBe('mixed');
    expect(pressed([], pinned, [])).toBe('false');
  });

  test('shows the newest wish that speaks of all of it', () => {
    const wishes = [
      { range: [40, 60] as Range, pinned: true },
      { range: [45, 50] as Range, pinned: false },
    ];
    expect(pressed([[50, 60]], pinned, wishes)).toBe('true');
    expect(pressed([[45, 50]], pinned, wishes)).toBe('false');
    expect(pressed([[40, 61]], pinned, wishes)).toBe('false');
  });
});

test('a wish is open until it is true', () => {
  const wish = (start: number, end: number, on: boolean) => ({
    range: [start, end] as Range,
    pinned: on,
  });
  expect(openWishes([wish(20, 35, true), wish(40, 50, true)], pinned)).toEqual([
    wish(40, 50, true),
  ]);
  // The template within it stays pinned: the wish is granted all the same.
  expect(openWishes([wish(5, 15, false), wish(21, 25, false)], pinned)).toEqual([
    wish(21, 25, false),
  ]);
});
