import { describe, expect, test } from 'vitest';
import { bin, Kind, roomFor } from '../../src/lib/heatmap/bins';

const base = { seen: 0, recentFrom: Infinity, pinned: [] as [number, number][] };

describe('the strip', () => {
  test('shows the share of each place', () => {
    const kept = new Uint8Array(128).fill(255, 0, 64);
    const bins = bin({ ...base, kept, total: 128, seen: 128 }, 4);
    expect([...bins.kept]).toEqual([1, 1, 0, 0]);
  });

  test('tells pinned, recent and unread from what was scored', () => {
    const kept = new Uint8Array(96).fill(255);
    kept.fill(40, 32, 64);
    const bins = bin({ kept, total: 120, seen: 96, recentFrom: 64, pinned: [[0, 32]] }, 4);
    expect([...bins.kind]).toEqual([Kind.Pinned, Kind.Scored, Kind.Recent, Kind.Unread]);
  });

  test('an evicted position is never drawn as pinned or recent', () => {
    const kept = new Uint8Array(128);
    const bins = bin({ kept, total: 128, seen: 128, recentFrom: 0, pinned: [[0, 128]] }, 4);
    expect([...bins.kind]).toEqual([Kind.Scored, Kind.Scored, Kind.Scored, Kind.Scored]);
  });

  test('has room ahead, so that one more token moves nothing', () => {
    expect(roomFor(1000)).toBe(roomFor(1001));
    expect(roomFor(1000)).toBeGreaterThanOrEqual(1000);
    const bins = bin({ ...base, kept: new Uint8Array(10), total: 10, seen: 10 }, 128);
    expect(bins.kind[127]).toBe(Kind.Empty);
  });

  test('200,000 positions are binned within a frame', () => {
    const kept = new Uint8Array(200_000).fill(200);
    const input = { ...base, kept, total: 200_000, seen: 200_000 };
    bin(input, 1800);
    const times = Array.from({ length: 9 }, () => {
      const start = performance.now();
      bin(input, 1800);
      return performance.now() - start;
    }).sort((a, b) => a - b);
    expect(times[0]).toBeLessThan(16);
  });
});
