import { describe, expect, test } from 'vitest';
import type { RawItem } from '../../src/lib/pdf/geometry';
import { pageText } from '../../src/lib/pdf/page';
import { pageList, pageOffsets, problems } from '../../src/lib/pdf/report';
import { joinBrokenWords, normalize } from '../../src/lib/pdf/words';

const item = (str: string, x: number, y: number, size = 10, dir = 'ltr'): RawItem => ({
  str,
  dir,
  transform: [size, 0, 0, size, x, y],
  width: str.length * size * 0.5,
  height: size,
});

describe('text from geometry', () => {
  test('runs on one line are joined, with a space where there is a gap', () => {
    expect(pageText([item('Hel', 0, 100), item('lo', 15, 100), item('world', 28, 100)])).toBe(
      'Hello world',
    );
  });

  test('the order of the stream does not matter', () => {
    expect(pageText([item('second', 0, 88), item('first', 0, 100)])).toBe('first\nsecond');
  });

  test('a superscript stays on its line', () => {
    expect(pageText([item('E = mc', 0, 100), item('2', 30, 104, 6), item('holds', 40, 100)])).toBe(
      'E = mc2 holds',
    );
  });

  test('a heading over two columns comes before both', () => {
    const column = (x: number, name: string) =>
      Array.from({ length: 6 }, (_, i) =>
        item(`${name} line ${i} of a column of prose`, x, 100 - i * 12),
      );
    const text = pageText([
      ...column(220, 'right'),
      ...column(0, 'left'),
      item('A title that stands across both of the columns of this page there', 20, 130, 12),
    ]);
    const at = (needle: string) => text.indexOf(needle);
    expect(at('A title')).toBe(0);
    expect(at('left line 5')).toBeLessThan(at('right line 0'));
  });

  test('a table is read row by row', () => {
    const rows = ['Alabama', 'Alaska', 'Arizona', 'Arkansas', 'Wyoming'];
    const items = rows.flatMap((name, i) => [
      item(name, 0, 100 - i * 12),
      item(`${i}00`, 120, 100 - i * 12),
      item(`${i}99`, 200, 100 - i * 12),
    ]);
    expect(pageText(items).split('\n')[1]).toBe('Alaska 100 199');
  });

  test('a larger gap begins a paragraph', () => {
    expect(pageText([item('one', 0, 100), item('two', 0, 88), item('three', 0, 60)])).toBe(
      'one\ntwo\n\nthree',
    );
  });

  test('notes of readers come last', () => {
    const text = pageText(
      [item('body', 0, 100)],
      [{ subtype: 'Text', contentsObj: { str: 'Check this.' } }],
    );
    expect(text).toBe('body\n\n[Note: Check this.]');
  });

  test('boxes of a form say whether they are ticked', () => {
    const box = (fieldValue: string, y: number) => ({
      subtype: 'Widget',
      fieldType: 'Btn',
      checkBox: true,
      exportValue: 'Yes',
      fieldValue,
      rect: [0, y, 10, y + 10],
    });
    expect(
      pageText(
        [item('Agreed', 20, 101), item('Refused', 20, 61)],
        [box('Yes', 99), box('Off', 59)],
      ),
    ).toBe('[x] Agreed\n[ ] Refused');
  });
});

describe('words', () => {
  test('hyphens at line ends are undone, others stay', () => {
    expect(joinBrokenWords(['a hyphen-', 'ated word', 'well-known', 'Anglo-', 'Saxon'])).toEqual([
      'a hyphenated',
      'word',
      'well-known',
      'Anglo-',
      'Saxon',
    ]);
  });

  test('ligatures become letters, powers stay powers', () => {
    expect(normalize('ﬁnd 10² ½ ﷲ')).toBe('find 10² ½ الله');
  });
});

describe('what could not be read', () => {
  test('is named by page', () => {
    const page = (n: number, kind: 'text' | 'image' | 'blank' | 'failed') => ({
      page: n,
      text: '',
      kind,
    });
    expect(
      problems([
        page(1, 'text'),
        page(3, 'image'),
        page(4, 'blank'),
        page(5, 'failed'),
        page(7, 'image'),
      ]),
    ).toEqual(['Pages 3, 7 are images without text.', 'Page 5 is damaged and could not be read.']);
    expect(pageList([1, 2, 3, 7, 8])).toBe('1–3, 7, 8');
  });

  test('offsets lead from text to page', () => {
    expect(pageOffsets(['ab', 'c', ''])).toEqual([0, 4, 7, 7]);
  });
});
