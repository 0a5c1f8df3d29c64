// @vitest-environment jsdom
import { cleanup, configure, fireEvent, screen, waitFor, within } from '@testing-library/svelte';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { chooseLanguage } from '../../src/lib/i18n/language.svelte';
import type { CompareRequest } from '../../src/lib/ipc/types';
import { message, PreviewApi, type PreviewOptions } from '../preview/api';
import { CACHE, OPTIONS } from '../preview/samples';
import { open } from './open';

configure({ asyncUtilTimeout: 10_000 });
beforeEach(() => {
  localStorage.clear();
  chooseLanguage('system');
});
afterEach(cleanup);

const GUIDE = {
  summary: { id: 'a', title: 'Guide', updated_ms: Date.now(), pinned: false },
  messages: [
    message(1, 'user', 'What does it say?', {
      documents: [{ id: 1, name: 'guide.pdf', pages: 12, tokens: 600, copied: false }],
    }),
    message(2, 'assistant', 'Much.', { finish: 'eos' }),
  ],
};

const columns = () => screen.getAllByTestId('compare-column');
const phases = () => columns().map((column) => column.dataset.phase);
/** Now and then: an answer changes the page hundreds of times. */
const reach = (wanted: string[]) =>
  vi.waitFor(() => expect(phases()).toEqual(wanted), { timeout: 10_000, interval: 50 });
const requests = (api: PreviewApi) =>
  api.calls.filter(([name]) => name === 'compare').map(([, request]) => request as CompareRequest);
const type = (id: string, value: string) =>
  fireEvent.input(screen.getByTestId(id), { target: { value } });

/** Opens the chat about the guide, and the comparison. */
async function compareGuide(options: PreviewOptions = {}) {
  const on = await open({ chats: [GUIDE], ...options });
  await fireEvent.click(await screen.findByTitle('Guide'));
  await screen.findByText('Much.');
  on.app.setBudget(128);
  await fireEvent.click(screen.getByTestId('open-compare'));
  return on;
}

describe('comparing caches', () => {
  test('asks the last question again under everything and under the slider, and marks what differs', async () => {
    const { api } = await compareGuide();
    expect(screen.getByTestId<HTMLTextAreaElement>('compare-question').value).toBe(
      'What does it say?',
    );
    expect(screen.getByTestId('compare-place').textContent).toBe(
      'The last question of this chat, asked again with guide.pdf.',
    );
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['done', 'done']);
    expect(requests(api)).toMatchObject([
      {
        chat: 'a',
        again: true,
        columns: [
          { policy: 'full', budget: 128 },
          { policy: 'h2o', budget: 128 },
        ],
      },
    ]);
    const [, small] = columns() as [HTMLElement, HTMLElement];
    await waitFor(() => expect(small.querySelector('ins')?.textContent).toBe('two'));
    expect(small.querySelector('del')?.textContent).toBe('three');
    expect(within(small).getByTestId('compare-state').textContent.trim()).toMatch(
      /^Differs from A from word \d+ on: \d+ of \d+ words are its own, \d+ are missing\.$/,
    );
    const hot = columns().map((c) => Number(within(c).getByTestId('compare-hot').dataset.amount));
    expect(hot[1]).toBeLessThan((hot[0] ?? 0) / 3);
    expect(within(small).getByTestId('compare-speed').textContent).toContain('17.3 tok/s');
    expect(within(small).getByTestId('compare-ttft').textContent).toContain('21.1 s');
    // The chat itself is as it was.
    expect(screen.getAllByTestId('assistant-message')).toHaveLength(1);
  });

  test('a new chat is compared with the system prompt that it would begin with', async () => {
    const { api, app } = await open();
    app.prefs.systemPrompt = 'Answer in one word.';
    await fireEvent.click(screen.getByTestId('open-compare'));
    await type('compare-question', 'Which one?');
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['done', 'done']);
    expect(requests(api)[0]).toMatchObject({ chat: null, system: 'Answer in one word.' });
  });

  test('takes along what is typed, with Ctrl+Shift+C and with the button', async () => {
    await open();
    await fireEvent.input(screen.getByTestId('composer'), { target: { value: 'And then?' } });
    await fireEvent.keyDown(screen.getByTestId('composer'), {
      key: 'C',
      ctrlKey: true,
      shiftKey: true,
    });
    const question = await screen.findByTestId<HTMLTextAreaElement>('compare-question');
    expect(question.value).toBe('And then?');
    expect(screen.getByTestId('compare-place').textContent).toBe('A new chat.');
    await fireEvent.keyDown(question, { key: 'Escape' });
    await waitFor(() => expect(screen.queryByTestId('compare-question')).toBeNull());
    expect(screen.getByTestId<HTMLTextAreaElement>('composer').value).toBe('And then?');
    await fireEvent.click(screen.getByTestId('compare-this'));
    expect(screen.getByTestId<HTMLTextAreaElement>('compare-question').value).toBe('And then?');
  });

  test('a new question comes after the chat, with what is attached', async () => {
    const { api } = await compareGuide({
      files: new Map([['/n.txt', new TextEncoder().encode('Notes').buffer]]),
    });
    api.drag({ type: 'drop', paths: ['/n.txt'] });
    await waitFor(() => expect(screen.getByTestId('document-chip').dataset.phase).toBe('ready'));
    await type('compare-question', 'What else?');
    expect(screen.getByTestId('compare-place').textContent).toBe(
      'The next question of this chat after 2 messages with guide.pdf, n.txt.',
    );
    await fireEvent.keyDown(screen.getByTestId('compare-question'), { key: 'Enter' });
    await reach(['done', 'done']);
    expect(requests(api)[0]).toMatchObject({
      again: false,
      text: 'What else?',
      documents: [{ document: { name: 'n.txt', pages: ['Notes'] } }],
    });
    // It stays in the composer, for the question itself.
    expect(screen.getByTestId('document-chip')).toBeTruthy();
  });

  test('columns have presets, can be added, set and taken away', async () => {
    const { api } = await compareGuide();
    await fireEvent.click(screen.getByTestId('preset-policies'));
    const policies = () =>
      screen.getAllByTestId<HTMLSelectElement>('compare-policy').map((field) => field.value);
    expect(policies()).toEqual(['full', 'h2o', 'snapkv']);
    expect(screen.getByTestId<HTMLButtonElement>('compare-add').disabled).toBe(true);
    await fireEvent.click(screen.getAllByTestId('compare-remove')[0] as HTMLElement);
    expect(policies()).toEqual(['h2o', 'snapkv']);
    const budget = screen.getAllByTestId('compare-budget')[1] as HTMLElement;
    await fireEvent.change(budget, { target: { value: '10' } });
    await type('compare-question', 'Budgets?');
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['done', 'done']);
    expect(requests(api)[0]?.columns.map((column) => column.budget)).toEqual([128, 64]);
    // Figures of other settings say so.
    const policy = screen.getAllByTestId('compare-policy')[1] as HTMLElement;
    await fireEvent.change(policy, { target: { value: 'window' } });
    expect(columns()[1]?.textContent).toContain('below: snapkv · 64 tokens');
  });

  test('a column that fails says why, and the others are answered', async () => {
    const { api } = await compareGuide();
    const message = 'The chat is longer than the 8192 tokens of training; choose another policy.';
    api.refuse = ({ policy }) => (policy === 'full' ? message : undefined);
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['failed', 'done']);
    expect(screen.getByTestId('compare-problem').textContent.trim()).toBe(message);
    expect(screen.queryByText(/^Differs/)).toBeNull();
  });

  test('Esc stops: what is written stays, what is left is left out', async () => {
    const { api } = await compareGuide({ pace: 0.2 });
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['writing', 'waiting']);
    expect(columns()[1]?.textContent).toContain('Waits its turn');
    await fireEvent.keyDown(screen.getByTestId('compare'), { key: 'Escape' });
    await reach(['stopped', 'stopped']);
    expect(api.calls.some(([name]) => name === 'stopComparison')).toBe(true);
    expect(api.calls.some(([name]) => name === 'stop')).toBe(false);
    await waitFor(() => expect(screen.getByTestId('compare-run')).toBeTruthy());
    expect(columns()[1]?.textContent).toContain('Left out.');
  });

  test('the last comparison of a chat is there again', async () => {
    const { api } = await open({ chats: [GUIDE] });
    const column = { finish: 'eos' as const, stats: null, cache: CACHE, problem: null };
    api.comparisons.set('a', {
      question: 'Which?',
      model: 'SmolLM2',
      asked_ms: 0,
      columns: [
        { ...column, options: { ...OPTIONS, policy: 'full' }, text: 'This one.' },
        { ...column, options: OPTIONS, text: 'That one.' },
      ],
    });
    await fireEvent.click(await screen.findByTitle('Guide'));
    await screen.findByText('Much.');
    await fireEvent.click(screen.getByTestId('open-compare'));
    await reach(['done', 'done']);
    expect(screen.getByTestId<HTMLTextAreaElement>('compare-question').value).toBe('Which?');
    expect(columns()[1]?.querySelector('ins')?.textContent).toBe('That');
  });

  test('is copied as Markdown, with figures and differences', async () => {
    const writeText = vi.fn<(text: string) => Promise<void>>().mockResolvedValue();
    Object.defineProperty(navigator, 'clipboard', { value: { writeText }, configurable: true });
    await compareGuide();
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['done', 'done']);
    await fireEvent.click(screen.getByTestId('compare-copy'));
    const markdown = writeText.mock.calls[0]?.[0] ?? '';
    expect(markdown).toContain('> What does it say?');
    expect(markdown).toContain('|  | A: full | B: h2o · 128 tokens |');
    expect(markdown).toMatch(/\| Hot cache \| [\d.]+ MiB \([\d,]+ of [\d,]+ tokens\) \| /);
    expect(markdown).toMatch(/## B: h2o · 128 tokens\n\n\*Differs from A from word \d+ on/);
  });

  test('what worked can be taken over for the chat', async () => {
    const { app } = await compareGuide();
    await fireEvent.click(screen.getByTestId('preset-policies'));
    await fireEvent.click(screen.getByTestId('compare-run'));
    await reach(['done', 'done', 'done']);
    await fireEvent.click(screen.getAllByTestId('compare-take')[2] as HTMLElement);
    expect(app.prefs.cacheOptions).toMatchObject({ policy: 'snapkv', budget: 128 });
  });

  test('goes on while the window shows something else, and says when it is ready', async () => {
    const { app } = await compareGuide({ pace: 0.05 });
    await fireEvent.click(screen.getByTestId('compare-run'));
    await fireEvent.click(screen.getByTestId('compare-close'));
    await vi.waitFor(() => screen.getByText('The comparison is ready.'), {
      timeout: 10_000,
      interval: 50,
    });
    await fireEvent.click(screen.getByTestId('toast-action'));
    expect(app.compare.open).toBe(true);
    await reach(['done', 'done']);
  });
});

test('a comparison that is refused is explained in the language of the window', async () => {
  const { api } = await compareGuide();
  chooseLanguage('zh');
  api.compare = () =>
    Promise.reject(
      Object.assign(new Error('A comparison is still being answered.'), { code: 'compare_busy' }),
    );
  await fireEvent.click(screen.getByTestId('compare-run'));
  await screen.findByText(/对比仍在进行/);
});
