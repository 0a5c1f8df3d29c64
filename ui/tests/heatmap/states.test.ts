import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { Kind } from '../../src/lib/heatmap/bins';
import { drawStrip, rowOf, type Palette } from '../../src/lib/heatmap/draw';
import { stateAt } from '../../src/lib/heatmap/states';

test('the hover text says which state a position is in', () => {
  const kept = new Uint8Array([255, 255, 102, 0, 0, 255, 128]);
  const held = { kept, seen: 7, pinned: [[0, 1]], forgotten: [[4, 5]] } as const;
  const at = (p: number) => stateAt(p, structuredClone(held) as never, 5);
  expect([0, 1, 2, 3, 4, 5, 6, 7].map(at)).toEqual([
    'kept 100% · pinned',
    'kept 100%',
    'kept 40%',
    'in store only',
    'forgotten',
    'kept 100% · recent',
    'kept 50% · recent',
    'not read yet',
  ]);
});

const PALETTE: Palette = {
  track: 'track',
  store: 'ink',
  forgotten: 'ink',
  unread: 'ink',
  keptLow: '#000000',
  keptHigh: '#000000',
  recent: 'ink',
  pinned: 'ink',
  turn: 'ink',
  page: 'ink',
  label: 'ink',
  cursor: 'ink',
};

/** What is drawn for a strip of one state, colours left out. */
function form(kind: number, kept: number): string {
  const strokes: string[] = [];
  const note =
    (name: string) =>
    (...numbers: number[]) =>
      strokes.push(`${name} ${numbers.join(' ')}`);
  const ctx = {
    fillRect: note('rect'),
    moveTo: note('move'),
    lineTo: note('line'),
    rect() {},
    setTransform() {},
    clearRect() {},
    save() {},
    restore() {},
    beginPath() {},
    clip() {},
    stroke() {},
  };
  const bins = {
    kind: new Uint8Array(40).fill(kind),
    kept: new Float32Array(40).fill(kept),
    room: 40,
  };
  const geometry = { width: 40, rows: 1, barHeight: 14, rowHeight: 27, dpr: 1 };
  drawStrip(ctx as never, bins, [], PALETTE, geometry, null);
  return strokes.join('; ');
}

describe('never colour alone', () => {
  test('each state has a form of its own', () => {
    const forms = [
      form(Kind.Empty, 0),
      form(Kind.Unread, 0),
      form(Kind.Kept, 1),
      form(Kind.Kept, 0.5),
      form(Kind.Kept, 0.001),
      form(Kind.Recent, 1),
      form(Kind.Pinned, 1),
      form(Kind.Store, 0),
      form(Kind.Forgotten, 0),
      form(Kind.Forgotten, 0.25),
    ];
    expect(new Set(forms).size).toBe(forms.length);
  });

  test.each(['light', 'dark'])('and stands out from what it is drawn on: %s', (theme) => {
    const css = readFileSync(new URL('../../src/app.css', import.meta.url), 'utf8');
    const parts = css.split(":root[data-theme='dark']");
    const of = (name: string) => {
      const value = new RegExp(`--${name}: (#[0-9a-f]{6});`).exec(
        parts[theme === 'dark' ? 1 : 0] ?? '',
      );
      return luminance(value?.[1] ?? '');
    };
    for (const name of ['store', 'forgotten', 'kept-low', 'kept-high', 'recent', 'pinned', 'hot']) {
      const [low, high] = [of('data-track'), of(`data-${name}`)].sort((a, b) => a - b) as [
        number,
        number,
      ];
      expect((high + 0.05) / (low + 0.05), name).toBeGreaterThanOrEqual(3);
    }
  });
});

/** WCAG 2.2. */
function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const c = parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

test('a position that is asked for is shown in its row', () => {
  const geometry = { width: 100, rows: 6, barHeight: 14, rowHeight: 27, dpr: 1 };
  expect([0, 99, 100, 599].map((p) => rowOf(p, 600, geometry))).toEqual([0, 0, 1, 5]);
  expect(rowOf(600, 600, { ...geometry, width: 0 })).toBe(5);
});
