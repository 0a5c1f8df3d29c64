import { expect, test } from 'vitest';
import { diffAgainst, wordCount } from '../../src/lib/compare/diff';

const marked = (base: string, text: string) =>
  diffAgainst(base, text)
    .parts.map(
      (part) =>
        ({ same: part.text, added: `+${part.text}+`, missing: `-${part.text}-` })[part.kind],
    )
    .join('');

test('differences are whole words, in the order of the text', () => {
  expect(marked('The fee is 12,400 euro.', 'The fee is 13,900 euro.')).toBe(
    'The fee is- 12,400-+ 13,900+ euro.',
  );
  expect(marked('One two three four five six', 'One three four five seven')).toBe(
    'One- two- three four five- six-+ seven+',
  );
  // A word or two between changes are not worth the eye's way there and back.
  expect(marked('a cat and a dog ran home', 'b bird and b fish ran home')).toBe(
    '-a cat and a dog-+b bird and b fish+ ran home',
  );
});

test('counts words, not spaces, and says how far both agree', () => {
  const diff = diffAgainst(
    'Both begin alike, then the first stops',
    'Both begin alike, then a second goes on',
  );
  expect(diff).toMatchObject({ added: 4, missing: 3, sameUntil: 4 });
  expect(diffAgainst('Same.', 'Same.')).toMatchObject({ added: 0, missing: 0, sameUntil: 1 });
});

test('finds words where none are divided by spaces', () => {
  expect(wordCount('预算是一千个词')).toBe(7);
  expect(wordCount('Ответ: сорок два, не 42.')).toBe(5);
  const diff = diffAgainst('预算是一千', '预算是两千');
  expect(diff.parts).toEqual([
    { kind: 'same', text: '预算是' },
    { kind: 'missing', text: '一' },
    { kind: 'added', text: '两' },
    { kind: 'same', text: '千' },
  ]);
});

test('what both texts hold can be put together again from the parts', () => {
  const [base, text] = ['a  b\n\nc d.\n- e', 'a b\n\nC d!\n- e f'];
  const { parts } = diffAgainst(base, text);
  const own = parts.filter(({ kind }) => kind !== 'missing').map((part) => part.text);
  expect(own.join('')).toBe(text);
});

test('two long answers without a word in common do not hold up the window', () => {
  const words = (mark: string) => Array.from({ length: 6000 }, (_, i) => `${mark}${i}`).join(' ');
  const before = performance.now();
  const diff = diffAgainst(words('a'), words('b'));
  expect(performance.now() - before).toBeLessThan(3000);
  expect(diff.added).toBe(6000);
  expect(diff.missing).toBe(6000);
});
