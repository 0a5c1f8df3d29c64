import { describe, expect, test } from 'vitest';
import { bin, Kind, roomFor } from '../../src/lib/heatmap/bins';

const base = { recentFrom: Infinity, pinned: [], forgotten: [] };

describe('the strip', () => {
  test('shows the share of each place', () => {
    const kept = new Uint8Array(128).fill(255, 0, 64);
    const bins = bin({ ...base, kept, total: 128, seen: 128 }, 4);
    expect([...bins.kept]).toEqual([1, 1, 0, 0]);
  });

  test('tells pinned, recent and unread from what was scored', () => {
    const kept = new Uint8Array(96).fill(255);
    kept.fill(40, 32, 64);
    const input = { ...base, kept, total: 120, seen: 96, recentFrom: 64 };
    const bins = bin({ ...input, pinned: [[0, 32]] }, 4);
    expect([...bins.kind]).toEqual([Kind.Pinned, Kind.Kept, Kind.Recent, Kind.Unread]);
  });

  test('an evicted position is never drawn as pinned or recent', () => {
    const kept = new Uint8Array(128);
    const input = { ...base, kept, total: 128, seen: 128, recentFrom: 0 };
    const bins = bin({ ...input, pinned: [[0, 128]] }, 4);
    expect([...bins.kind]).toEqual(Array(4).fill(Kind.Store));
  });

  test('tells what only the store holds from what is forgotten', () => {
    const kept = new Uint8Array(128);
    kept[40] = 255;
    kept.fill(9, 64, 84);
    kept.fill(255, 116);
    const forgotten: [number, number][] = [
      [0, 20],
      [24, 32],
      [32, 40],
      [96, 116],
    ];
    const bins = bin({ ...base, kept, total: 128, seen: 128, forgotten }, 4);
    expect([...bins.kind]).toEqual([Kind.Forgotten, Kind.Store, Kind.Kept, Kind.Forgotten]);
    expect(bins.kept[3]).toBeCloseTo(12 / 32);
  });

  test('several short pins in one place count together', () => {
    const kept = new Uint8Array(128).fill(255);
    const pinned: [number, number][] = [
      [0, 10],
      [12, 22],
    ];
    const bins = bin({ ...base, kept, total: 128, seen: 128, pinned }, 4);
    expect([...bins.kind.subarray(0, 2)]).toEqual([Kind.Pinned, Kind.Kept]);
  });

  test('has room ahead, so that one more token moves nothing', () => {
    expect(roomFor(1000)).toBe(roomFor(1001));
    expect(roomFor(1000)).toBeGreaterThanOrEqual(1000);
    const bins = bin({ ...base, kept: new Uint8Array(10), total: 10, seen: 10 }, 128);
    expect(bins.kind[127]).toBe(Kind.Empty);
  });

  test('200,000 positions are binned within a frame', () => {
    const kept = new Uint8Array(200_000).fill(200);
    const every = (n: number): [number, number][] =>
      Array.from({ length: 200_000 / n }, (_, i) => [i * n, i * n + n / 4]);
    const [pinned, forgotten] = [every(400), every(64)];
    const input = { ...base, kept, total: 200_000, seen: 200_000, pinned, forgotten };
    bin(input, 1800);
    const times = Array.from({ length: 9 }, () => {
      const start = performance.now();
      bin(input, 1800);
      return performance.now() - start;
    }).sort((a, b) => a - b);
    expect(times[0]).toBeLessThan(16);
  });
});
