import { describe, expect, test } from 'vitest';
import { align } from '../../src/lib/heatmap/align';

/** Of each part of what is shown, the part of what was read that stands for it. */
function read(shown: string, text: string, ...parts: string[]): string[] {
  const map = align(shown, text);
  return parts.map((part) => {
    const from = shown.indexOf(part);
    const found = [...map.subarray(from, from + part.length)].filter((i) => i >= 0);
    return found.length === 0 ? '' : text.slice(Math.min(...found), Math.max(...found) + 1);
  });
}

describe('what is shown leads to what the model reads', () => {
  test('letter for letter where both are the same', () => {
    expect([...align('ab c', 'ab c')]).toEqual([0, 1, 2, 3]);
  });

  test('across white space, page labels and broken words', () => {
    const shown = 'The cis-\ntern holds\nrain water.';
    const text = '[Page 3]\nThe cistern holds rain water.\n\n';
    expect(read(shown, text, 'The', 'tern', 'rain', 'water.')).toEqual([
      'The',
      'tern',
      'rain',
      'water.',
    ]);
  });

  test('across the marks of Markdown and the addresses of links', () => {
    const shown = 'Three ways\nMove the slider, see the project page for more.';
    const text = `## Three **ways**\n\n1. Move the *slider*, see the [project page](https://example.org/${'x'.repeat(90)}) for more.`;
    expect(read(shown, text, 'ways', 'slider', 'project page', 'for more.')).toEqual([
      'ways',
      'slider',
      'project page',
      'for more.',
    ]);
  });

  test('across forms of the same letter', () => {
    expect(read('oﬃce ﬂoor', 'office floor', 'oﬃce', 'ﬂoor')).toEqual(['office', 'floor']);
    expect(read('日本語テスト', '日本語テスト', '本', 'テ')).toEqual(['本', 'テ']);
  });

  test('what only one side has leads nowhere, and what follows is found again', () => {
    const shown = 'A figure legend that was not read. And then the text goes on.';
    const text = 'And then the text goes on.';
    expect(read(shown, text, 'figure', 'the text')).toEqual(['', 'the text']);
  });

  test('across more than is tried letter by letter', () => {
    const figure = 'Axis labels and numbers 1 2 3 of a figure. '.repeat(40);
    expect(
      read(`Before it. ${figure}And after it.`, 'Before it. And after it.', 'after it.'),
    ).toEqual(['after it.']);
    expect(
      read('Before it. And after it.', `Before it. ${figure}And after it.`, 'after it.'),
    ).toEqual(['after it.']);
  });

  test('two texts that have nothing in common are told apart at once', () => {
    const map = align('abcdefgh '.repeat(6000), 'zyxwvuts '.repeat(6000));
    expect(map.every((index) => index === -1)).toBe(true);
  });
});
