import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { budgetAt, SLIDER_STEPS, stepOf, throttle } from '../../src/lib/cache/budget';
import { KeptMap } from '../../src/lib/cache/kept';

describe('the slider', () => {
  test('reaches from the smallest budget to the whole context', () => {
    expect(budgetAt(0, 8192)).toBe(64);
    expect(budgetAt(SLIDER_STEPS, 8192)).toBe(8192);
  });

  test('stands where the budget is that it set', () => {
    for (const step of [0, 100, 333, 500, 900, SLIDER_STEPS]) {
      const budget = budgetAt(step, 131_072);
      expect(budgetAt(stepOf(budget, 131_072), 131_072)).toBe(budget);
    }
  });

  test('never goes down when moved up', () => {
    const all = Array.from({ length: SLIDER_STEPS + 1 }, (_, step) => budgetAt(step, 40_960));
    expect(all).toEqual([...all].sort((a, b) => a - b));
  });
});

describe('sending the budget', () => {
  beforeEach(() => vi.useFakeTimers());
  afterEach(() => vi.useRealTimers());

  test('the first value goes at once, the last one always', () => {
    const sent: number[] = [];
    const send = throttle<number>(80, (value) => sent.push(value));
    for (let i = 0; i < 10; i += 1) send(i);
    expect(sent).toEqual([0]);
    vi.advanceTimersByTime(500);
    expect(sent).toEqual([0, 9]);
  });
});

test('kept fractions are patched, grow, and are dropped when a chat goes back', () => {
  const kept = new KeptMap();
  const patch = (start: number, ...values: number[]) =>
    kept.apply({ start, values: btoa(String.fromCharCode(...values)) });
  patch(0, 255, 255, 255);
  patch(1, 7);
  patch(5000, 9);
  expect([...kept.values.subarray(0, 4)]).toEqual([255, 7, 255, 0]);
  expect(kept.length).toBe(5001);
  kept.truncate(2);
  patch(3, 1);
  expect([...kept.values]).toEqual([255, 7, 0, 1]);
});
