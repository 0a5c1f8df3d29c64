import { describe, expect, test } from 'vitest';
import { Stretch, StretchCache } from '../../src/lib/heatmap/pieces';

/** The second and third token are halves of one character. */
const stretch = new Stretch(100, { text: 'The 🌊 rises', lengths: [4, 0, 2, 1, 5] });

describe('a stretch of the context', () => {
  test('knows which token spells a place, and where a token stands', () => {
    expect(stretch.end).toBe(105);
    expect([0, 3, 4, 5, 6, 7, 11, 99].map((i) => stretch.positionAt(i))).toEqual([
      100, 100, 102, 102, 103, 104, 104, 104,
    ]);
    expect([100, 102, 104].map((p) => stretch.indexOf(p))).toEqual([0, 4, 7]);
  });

  test('a slice of it keeps the positions', () => {
    const slice = stretch.slice(7, 12);
    expect(slice.text).toBe('rises');
    expect([slice.start, slice.end]).toEqual([104, 105]);
    expect(slice.positionAt(2)).toBe(104);
  });

  test('is asked for once, until the conversation changes under it', async () => {
    const cache = new StretchCache();
    let asked = 0;
    const get = () =>
      cache.get(10, 12, () => {
        asked += 1;
        return Promise.resolve({ text: 'ab', lengths: [1, 1] });
      });
    await get();
    await get();
    cache.dropFrom(12);
    await get();
    expect(asked).toBe(1);
    cache.dropFrom(11);
    await get();
    expect(asked).toBe(2);
  });

  test('is asked for again where it could not be had', async () => {
    const cache = new StretchCache();
    await expect(cache.get(0, 1, () => Promise.reject(new Error('away')))).rejects.toThrow('away');
    const found = await cache.get(0, 1, () => Promise.resolve({ text: 'a', lengths: [1] }));
    expect(found.text).toBe('a');
  });
});
