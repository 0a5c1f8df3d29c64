import { expect, test } from 'vitest';
import { Session } from '../../src/lib/state/session.svelte';
import { CACHE, OPTIONS } from '../preview/samples';

const options = { ...OPTIONS, budget: 256 };
const token = (text: string, generated: number) =>
  ({ type: 'token', session: 's', text, generated, tok_s: 10 }) as const;

test('an answer grows token by token and keeps its time to the first', () => {
  const session = new Session('s');
  session.begin(options, '', 1000);
  session.apply(
    { type: 'prefill', session: 's', done: 10, total: 20, tok_s: 5, remaining_s: 2, mode: 'exact' },
    1500,
  );
  expect(session.prefill).toMatchObject({ done: 10, total: 20, remainingS: 2, mode: 'exact' });
  session.apply(token('Hel', 1), 3000);
  session.apply(token('lo', 2), 4000);
  expect(session.prefill).toBeNull();
  expect(session.answer).toMatchObject({ text: 'Hello', generated: 2, ttftS: 2 });
  const stats = {
    prefilled: 20,
    prefill_s: 1.9,
    recall_s: 0.1,
    looked_again: 0,
    ttft_s: 2.1,
    generated: 2,
    tok_s: 10,
  };
  session.apply({ type: 'finished', session: 's', reason: 'eos', stats });
  expect(session.busy).toBe(false);
  expect(session.answer).toMatchObject({ text: 'Hello', finish: 'eos', ttftS: 2.1 });
});

test('tokens that are already in the stored text are not added twice', () => {
  const session = new Session('s');
  session.resume('Hello wor', 3);
  session.apply(token('wor', 3));
  session.apply(token('ld', 4));
  expect(session.answer?.text).toBe('Hello world');
});

test('a failure ends the answer and says why', () => {
  const session = new Session('s');
  session.begin(options);
  session.apply({ type: 'failed', session: 's', code: 'oom', message: 'Memory ran out.' });
  expect(session.busy).toBe(false);
  expect(session.failure).toEqual({ code: 'oom', message: 'Memory ran out.' });
});

test('going back in a chat forgets what stood after it', () => {
  const session = new Session('s');
  session.kept.apply({ start: 0, values: btoa('\u00ff'.repeat(100)) });
  const before = session.keptVersion;
  session.apply({ type: 'layout', session: 's', n_tokens: 40, reused: 30, spans: [] });
  expect(session.kept.length).toBe(40);
  expect(session.keptVersion).toBeGreaterThan(before);
});

const recalled = (start: number) => ({
  type: 'recalled' as const,
  session: 's',
  passages: [{ start, end: start + 9, entries: 4 }],
});

test('what was recalled belongs to its answer, whichever of the two is known first', () => {
  const session = new Session('s');
  session.begin(options);
  session.apply(recalled(100));
  session.answersTo(2);
  session.begin(options);
  session.answersTo(4);
  session.apply(recalled(700));
  session.begin(options);
  session.answersTo(6);
  expect(session.recallOf(2)?.passages[0]?.start).toBe(100);
  expect(session.recallOf(4)?.passages[0]?.start).toBe(700);
  expect(session.recallOf(6)).toBeUndefined();
});

test('a pin is shown as wished until the worker has it, or says that it cannot', () => {
  const session = new Session('s');
  const cache = (pinned: [number, number][]) =>
    session.apply({ type: 'cache', session: 's', state: CACHE, kept: [], forgotten: [], pinned });
  session.wishPin({ range: [10, 20], pinned: true });
  cache([[0, 4]]);
  expect(session.pinWishes).toHaveLength(1);
  cache([
    [0, 4],
    [10, 20],
  ]);
  expect(session.pinWishes).toHaveLength(0);
  session.wishPin({ range: [30, 900], pinned: true });
  session.apply({ type: 'notice', session: 's', code: 'options', message: 'No room.' });
  expect(session.pinWishes).toHaveLength(0);
});

test('forgotten and pinned ranges follow the worker and go with its memory', () => {
  const session = new Session('s');
  const forgotten: [number, number][] = [[5, 9]];
  const pinned: [number, number][] = [[0, 4]];
  session.apply({ type: 'cache', session: 's', state: CACHE, kept: [], forgotten, pinned });
  expect([session.forgotten, session.pinned]).toEqual([forgotten, pinned]);
  session.forget();
  expect([session.forgotten, session.pinned]).toEqual([[], []]);
});
