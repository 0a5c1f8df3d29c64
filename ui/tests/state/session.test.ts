import { expect, test } from 'vitest';
import { Session } from '../../src/lib/state/session.svelte';

const options = {
  policy: 'h2o' as const,
  budget: 256,
  sinks: 4,
  recent: null,
  chunk: 512,
  evict_every: 64,
  kv: 'f16' as const,
};
const token = (text: string, generated: number) =>
  ({ type: 'token', session: 's', text, generated, tok_s: 10 }) as const;

test('an answer grows token by token and keeps its time to the first', () => {
  const session = new Session('s');
  session.begin(options, 1000);
  session.apply(
    { type: 'prefill', session: 's', done: 10, total: 20, tok_s: 5, remaining_s: 2 },
    1500,
  );
  expect(session.prefill).toMatchObject({ done: 10, total: 20, remainingS: 2 });
  session.apply(token('Hel', 1), 3000);
  session.apply(token('lo', 2), 4000);
  expect(session.prefill).toBeNull();
  expect(session.answer).toMatchObject({ text: 'Hello', generated: 2, ttftS: 2 });
  const stats = { prefilled: 20, prefill_s: 1.9, ttft_s: 2.1, generated: 2, tok_s: 10 };
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
