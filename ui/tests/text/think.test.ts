import { expect, test } from 'vitest';
import { splitThinking } from '../../src/lib/text/think';

test('thoughts are told from the answer', () => {
  expect(splitThinking('<think>\nHm.\n</think>\n\nYes.', false)).toEqual([
    { kind: 'think', text: 'Hm.', open: false },
    { kind: 'text', text: 'Yes.', open: false },
  ]);
});

test('thoughts being written are open', () => {
  expect(splitThinking('<think>Hm', true)).toEqual([{ kind: 'think', text: 'Hm', open: true }]);
});

test('a template that opened the tag itself leaves only its end', () => {
  expect(splitThinking('Hm.</think>Yes.', false).map((p) => [p.kind, p.text])).toEqual([
    ['think', 'Hm.'],
    ['text', 'Yes.'],
  ]);
});

test('an answer without thoughts is one part', () => {
  expect(splitThinking('Yes.', true)).toEqual([{ kind: 'text', text: 'Yes.', open: true }]);
  expect(splitThinking('', true)).toEqual([]);
});
