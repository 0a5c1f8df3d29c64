import { describe, expect, test } from 'vitest';
import { blockAt, blocksOf } from '../../src/lib/preview/blocks';

describe('a long text in parts', () => {
  test('nothing is lost, and lines stay whole', () => {
    const text = Array.from({ length: 400 }, (_, i) => `line ${i} of a long document`).join('\n');
    const blocks = blocksOf(text, 1000);
    expect(blocks.map(({ from, to }) => text.slice(from, to)).join('')).toBe(text);
    expect(blocks.slice(0, -1).every(({ to }) => text[to - 1] === '\n')).toBe(true);
    expect(blockAt(blocks, text.indexOf('line 399'))).toBe(blocks.length - 1);
    expect(blockAt(blocks, 0)).toBe(0);
  });

  test('a text without lines is cut between words, and without words between characters', () => {
    const words = 'word '.repeat(1000);
    expect(blocksOf(words, 500).every(({ to }) => words[to - 1] === ' ')).toBe(true);
    const waves = '🌊'.repeat(600);
    expect(blocksOf(waves, 501).every(({ from }) => from % 2 === 0)).toBe(true);
    expect(blocksOf('')).toEqual([]);
  });
});
