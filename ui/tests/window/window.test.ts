// @vitest-environment jsdom
import { cleanup, configure, fireEvent, screen, waitFor, within } from '@testing-library/svelte';
import { tick } from 'svelte';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { chooseLanguage } from '../../src/lib/i18n/language.svelte';
import { App } from '../../src/lib/state/app.svelte';
import { message, PreviewApi, type PreviewOptions } from '../preview/api';
import { GAUGE } from '../preview/samples';
import { composer, enter, noPdf, open, sent, text, type } from './open';

configure({ asyncUtilTimeout: 10_000 });
beforeEach(() => {
  localStorage.clear();
  chooseLanguage('system');
});
afterEach(cleanup);

describe('asking', () => {
  test('Enter sends, Shift+Enter and a composition do not', async () => {
    const { api } = await open();
    await type('Hello?');
    await enter({ shiftKey: true });
    await enter({ isComposing: true });
    expect(sent(api)).toHaveLength(0);
    await enter();
    expect(sent(api)).toHaveLength(1);
    expect(composer().value).toBe('');
  });

  test('the answer streams in as Markdown and ends with its figures', async () => {
    await open();
    await type('Budgets?');
    await enter();
    const answer = await screen.findByTestId('assistant-message');
    await waitFor(() => expect(within(answer).getByTestId('prefilled')).toBeTruthy(), {
      timeout: 4000,
    });
    expect(answer.querySelector('strong')?.textContent).toBe('three ways to change the budget');
    expect(within(answer).getByTestId('tok-s').textContent).toBe('17.3 tok/s');
    expect(screen.getByTestId('context-share').textContent).toMatch(/ \/ 8\.2K \(\d+%\)/);
  });

  test('Esc stops an answer', async () => {
    const { api } = await open({ pace: 1 });
    await type('Budgets?');
    await enter();
    await screen.findByTestId('stop');
    await waitFor(() => expect(screen.getByTestId('prefill-progress')).toBeTruthy());
    await fireEvent.keyDown(composer(), { key: 'Escape' });
    expect(api.calls.some(([name]) => name === 'stop')).toBe(true);
    await waitFor(() => expect(screen.getByTestId('send')).toBeTruthy());
    expect(screen.getByText('Stopped')).toBeTruthy();
  });

  test('links in an answer open outside, through the shell', async () => {
    const { api } = await open();
    await type('Budgets?');
    await enter();
    await screen.findByTestId('prefilled');
    const link = screen.getByText('project page');
    await fireEvent.click(link);
    expect(api.calls).toContainEqual(['openLink', 'https://example.org/cistern']);
  });

  test('a question that is refused stays in the composer', async () => {
    const { api } = await open();
    api.send = () => Promise.reject(new Error('The disk is full.'));
    await type('Budgets?');
    await enter();
    await screen.findByText('The disk is full.');
    expect(composer().value).toBe('Budgets?');
  });
});

describe('branches', () => {
  const chat = () => ({
    summary: { id: 'a', title: 'Budgets', updated_ms: Date.now(), pinned: false },
    messages: [
      message(1, 'user', 'Which budgets?', {
        documents: [{ id: 1, name: 'guide.pdf', copied: false, pages: 3, tokens: 900 }],
      }),
      message(2, 'assistant', 'Two of them', { finish: 'length' }),
    ],
  });
  const opened = async () => {
    const { api } = await open({ chats: [chat()] });
    await fireEvent.click(await screen.findByTitle('Budgets'));
    await screen.findByText('Which budgets?');
    return api;
  };
  const answered = () =>
    waitFor(() =>
      expect(screen.getByTestId('assistant-message').getAttribute('aria-busy')).toBe('false'),
    );

  test('an edited question is asked in a branch of its own, and both can be looked at', async () => {
    const api = await opened();
    await fireEvent.click(screen.getByTestId('edit'));
    const field = screen.getByTestId<HTMLTextAreaElement>('edit-text');
    expect(field.value).toBe('Which budgets?');
    await fireEvent.input(field, { target: { value: 'Which sliders?' } });
    await fireEvent.keyDown(field, { key: 'Enter' });
    await screen.findByText('Which sliders?');
    expect(sent(api)[0]?.[1]).toMatchObject({ chat: 'a', edits: 1, documents: [] });
    expect(screen.queryByText('Two of them')).toBeNull();
    expect(screen.getByText('guide.pdf')).toBeTruthy();
    await answered();

    const [branch] = screen.getAllByTestId('branch');
    expect(branch?.textContent).toBe('2/2');
    await fireEvent.click(screen.getByTestId('branch-before'));
    await screen.findByText('Two of them');
    expect(screen.getByText('Which budgets?')).toBeTruthy();
    expect(screen.getByTestId('branch').textContent).toBe('1/2');
    // The model still holds what it read of the other branch, which is none of these messages.
    await screen.findByText('Another branch');
  });

  test('what is found in another branch is shown in it', async () => {
    await opened();
    await fireEvent.click(screen.getByTestId('regenerate'));
    await answered();
    expect(screen.getByTestId('branch').textContent).toBe('2/2');
    await fireEvent.input(screen.getByTestId('search'), { target: { value: 'two of them' } });
    await fireEvent.click(await screen.findByTestId('search-hit'));
    await waitFor(() => expect(screen.getByTestId('branch').textContent).toBe('1/2'));
    expect(screen.getByTestId('assistant-message').textContent).toContain('Two of them');
  });

  test('Esc leaves a question as it was', async () => {
    const api = await opened();
    await fireEvent.click(screen.getByTestId('edit'));
    await fireEvent.keyDown(screen.getByTestId('edit-text'), { key: 'Escape' });
    expect(screen.queryByTestId('edit-text')).toBeNull();
    expect(document.activeElement).toBe(screen.getByTestId('edit'));
    expect(sent(api)).toHaveLength(0);
  });

  test('another answer stands beside the first', async () => {
    const api = await opened();
    await fireEvent.click(screen.getByTestId('regenerate'));
    await answered();
    expect(api.calls.find(([name]) => name === 'answerAgain')?.[1]).toMatchObject({
      chat: 'a',
      answer: 2,
      how: 'anew',
    });
    expect(screen.getByTestId('branch').textContent).toBe('2/2');
    expect(screen.queryByText('Two of them')).toBeNull();
  });

  test('an answer that was cut off goes on where it ended', async () => {
    await opened();
    await fireEvent.click(screen.getByTestId('continue'));
    await waitFor(() => expect(screen.getByTestId('prefilled')).toBeTruthy());
    await answered();
    expect(screen.getByTestId('assistant-message').textContent).toMatch(
      /^Two of themThe guide describes three ways/,
    );
    expect(screen.queryByTestId('continue')).toBeNull();
    expect(screen.queryByTestId('branch')).toBeNull();
  });
});

describe('documents', () => {
  test('a dropped file shows pages and tokens before it is sent, and goes with the question', async () => {
    const { api } = await open({ files: new Map([['/d/notes.md', text('word '.repeat(100))]]) });
    api.drag({ type: 'over' });
    await screen.findByTestId('drop-overlay');
    api.drag({ type: 'drop', paths: ['/d/notes.md'] });
    const chip = await screen.findByTestId('document-chip');
    await waitFor(() =>
      expect(within(chip).getByTestId('chip-tokens').textContent).toBe('139 tokens'),
    );
    expect(within(chip).getByTestId('chip-pages').textContent).toBe('1 page');
    expect(screen.queryByTestId('drop-overlay')).toBeNull();
    await type('What?');
    await enter();
    expect(sent(api)[0]?.[1]).toMatchObject({
      documents: [{ tokens: 139, document: { name: 'notes.md' } }],
    });
    await waitFor(() => expect(screen.queryByTestId('document-chip')).toBeNull());
  });

  test('a file that cannot be read says so and does not block the question', async () => {
    const { api } = await open({ files: new Map([['/d/empty.txt', text('')]]) });
    api.drag({ type: 'drop', paths: ['/d/empty.txt', '/d/letter.docx'] });
    await waitFor(() => expect(screen.getAllByTestId('chip-error')).toHaveLength(2));
    expect(screen.getAllByTestId('chip-error').map((e) => e.textContent)).toEqual([
      'This file is empty.',
      'Cistern reads PDF, .txt and .md files. Convert this one first.',
    ]);
    await type('What?');
    await enter();
    expect(sent(api)).toHaveLength(1);
  });

  test('a long paste becomes a document, which can be looked at and put into the text after all', async () => {
    const { api } = await open();
    const paste = (value: string) =>
      fireEvent.paste(composer(), { clipboardData: { getData: () => value } });
    await paste('short');
    expect(screen.queryByTestId('document-chip')).toBeNull();
    const minutes = `Minutes of the meeting in the harbour.\n${'We talked about the lamp. '.repeat(110)}`;
    await paste(minutes);
    const chip = await screen.findByTestId('document-chip');
    await fireEvent.click(await within(chip).findByTestId('chip-open'));
    expect(chip.textContent).toContain('Pasted: Minutes of the meeting in the…');
    expect(screen.getByTestId('preview').textContent).toContain('Minutes of the meeting');
    await fireEvent.click(screen.getByTestId('preview-close'));
    await type('Before ');
    composer().setSelectionRange(7, 7);
    await fireEvent.click(within(chip).getByTestId('chip-insert'));
    expect(composer().value).toBe(`Before ${minutes.trim()}`);
    expect(screen.queryByTestId('document-chip')).toBeNull();
    await paste(minutes);
    await type('What?');
    await screen.findByTestId('chip-tokens');
    await enter();
    await waitFor(() => expect(sent(api)).toHaveLength(1));
    expect(sent(api)[0]?.[1]).toMatchObject({
      documents: [{ file: null, document: { pages: [minutes.trim()] } }],
    });
  });

  test('the copy of a sent document is shown from its chip, and closed with Esc', async () => {
    await open({ files: new Map([['/d/notes.md', text('Mind the lamp.')]]) }).then(({ api }) =>
      api.drag({ type: 'drop', paths: ['/d/notes.md'] }),
    );
    await screen.findByTestId('chip-pages');
    await type('What?');
    await enter();
    await fireEvent.click(await screen.findByTestId('document-open'));
    const preview = screen.getByTestId('preview');
    await waitFor(() => expect(preview.querySelector('h2')?.textContent).toBe('notes.md'));
    await fireEvent.keyDown(preview, { key: 'Escape' });
    expect(screen.queryByTestId('preview')).toBeNull();
  });

  test('a dropped GGUF file opens as a model', async () => {
    const { api } = await open();
    api.drag({ type: 'drop', paths: ['/m/own.gguf'] });
    await waitFor(() => expect(api.calls).toContainEqual(['loadModel', '/m/own.gguf']));
    expect(screen.queryByTestId('document-chip')).toBeNull();
  });
});

describe('memory', () => {
  test('the slider changes the budget of the open chat while it writes', async () => {
    const { api } = await open({
      pace: 1,
      files: new Map([['/d/a.txt', text('word '.repeat(4000))]]),
    });
    api.drag({ type: 'drop', paths: ['/d/a.txt'] });
    await waitFor(() => expect(screen.getByTestId('chip-tokens').textContent).toMatch(/tokens/));
    await type('What?');
    await enter();
    await waitFor(() => expect(screen.getByTestId('hot-bytes').textContent).not.toBe('–'));
    await fireEvent.input(screen.getByTestId('budget-slider'), { target: { value: '200' } });
    const [, chat, budget] = api.calls.find(([name]) => name === 'setBudget') ?? [];
    expect(chat).toMatch(/^chat-/);
    expect(budget).toBe(176);
    expect(screen.getByTestId('budget-tokens').textContent).toBe('176');
    expect(screen.getByTestId('budget-bytes').textContent).toBe('3.8 MiB');
  });

  test('figures that cannot be read are unknown, never NaN', async () => {
    const { api } = await open();
    api.emit({ type: 'gauge', gauge: GAUGE });
    await tick();
    expect(screen.getByTestId('gauge-kind').textContent).toBe('VRAM');
    for (const key of ['used', 'total', 'scratch', 'other', 'free']) {
      expect(screen.getByTestId(`gauge-${key}`).textContent.trim()).toBe('unknown');
    }
    expect(document.body.textContent).not.toContain('NaN');
  });

  test('the store has a part of the gauge where it shares the memory', async () => {
    const { api } = await open();
    expect(screen.getByTestId('gauge-store').textContent.trim()).toBe('512 MiB');
    api.emit({ type: 'gauge', gauge: GAUGE });
    await tick();
    expect(screen.queryByTestId('gauge-store')).toBeNull();
  });

  test('the budget says how full the store is', async () => {
    await open();
    await type('Budgets?');
    await enter();
    await waitFor(() =>
      expect(screen.getByTestId('store-bytes').textContent).toMatch(/^[\d.]+ MiB of 4\.0 GiB$/),
    );
  });

  test('the heatmap tells a screen reader what it shows', async () => {
    await open();
    await type('Budgets?');
    await enter();
    await waitFor(() =>
      expect(screen.getByTestId('heatmap').getAttribute('aria-label')).toMatch(
        /^Context of \d+ tokens, \d+% of it in the hot cache\./,
      ),
    );
  });
});

/** Asks about a document of 12 pages with a budget that is far too small for it. */
async function askAboutGuide(options: PreviewOptions = {}) {
  const guide = { id: 1, name: 'guide.pdf', pages: 12, tokens: 1200, copied: false };
  const asked = message(1, 'user', 'First?', { documents: [guide] });
  const summary = { id: 'a', title: 'Guide', updated_ms: Date.now(), pinned: false };
  const messages = [asked, message(2, 'assistant', 'Yes.', { finish: 'eos' })];
  const { api, app } = await open({ chats: [{ summary, messages }], ...options });
  app.setBudget(192);
  await fireEvent.click(await screen.findByTitle('Guide'));
  await screen.findByText('Yes.');
  await type('And then?');
  await enter();
  return { api, app };
}

describe('recall', () => {
  test('goes with the question, and can be turned off', async () => {
    const { api } = await open();
    const toggle = screen.getByRole('switch', { name: 'Bring back what a question asks for' });
    expect((toggle as HTMLInputElement).checked).toBe(true);
    await fireEvent.click(toggle);
    await type('Budgets?');
    await enter();
    expect(sent(api)[0]?.[1]).toMatchObject({ cache: { recall: false, prefill: 'auto' } });
    await fireEvent.click(toggle);
    expect(screen.getByText('from the next question')).toBeTruthy();
  });

  test('an answer says what was looked at again, and leads to it on the heatmap', async () => {
    const { app } = await askAboutGuide();
    const line = await screen.findByTestId('looked-again');
    await waitFor(() => expect(app.chats.busy).toBe(false));
    expect(line.textContent.replace(/\s+/g, ' ').trim()).toBe(
      'Looked again at guide.pdf, p. 3, p. 1, p. 6, p. 4, and 2 more: guide.pdf, page 7; guide.pdf, page 5',
    );
    await fireEvent.click(within(line).getByText('p. 6'));
    await waitFor(() =>
      expect(screen.getByTestId('heatmap-tip').textContent).toContain('guide.pdf, page 6'),
    );
  });

  test('says how the prompt is read', async () => {
    await askAboutGuide({ pace: 1 });
    await waitFor(() =>
      expect(screen.getByTestId('prefill-mode').textContent).toBe(
        'Reading exactly (layer by layer)',
      ),
    );
  });
});

describe('pins', () => {
  const button = (name: string) => screen.getByLabelText(`Keep ${name} in memory`);
  const isPressed = (name: string) => button(name).getAttribute('aria-pressed');

  test('a page and its document are kept, and let go again', async () => {
    const { api, app } = await askAboutGuide();
    await waitFor(() => expect(app.chats.busy).toBe(false));
    await waitFor(() => expect(isPressed('guide.pdf, page 2')).toBe('false'));
    await fireEvent.click(button('guide.pdf, page 2'));
    expect(api.calls.findLast(([name]) => name === 'pin')).toEqual([
      'pin',
      'a',
      { type: 'range', start: 105, end: 205 },
      true,
    ]);
    await waitFor(() => expect(isPressed('guide.pdf')).toBe('mixed'));
    expect(isPressed('guide.pdf, page 2')).toBe('true');
    await fireEvent.click(button('guide.pdf, page 2'));
    await waitFor(() => expect(isPressed('guide.pdf')).toBe('false'));
  });

  test('what does not fit is refused with a sentence, and not shown as pinned', async () => {
    const { app } = await askAboutGuide();
    await waitFor(() => expect(app.chats.busy).toBe(false));
    await waitFor(() => expect(isPressed('guide.pdf')).toBe('false'));
    await fireEvent.click(button('guide.pdf'));
    await screen.findByText(/^1200 tokens are pinned, which leaves no room in a budget of 192/);
    await waitFor(() => expect(isPressed('guide.pdf')).toBe('false'));
  });

  test('the engine pins the template by itself: there is nothing to press', async () => {
    const { app } = await askAboutGuide();
    await waitFor(() => expect(app.chats.busy).toBe(false));
    const row = await screen.findByText('Chat template');
    const whole = within(row.closest('tr') as HTMLElement);
    await waitFor(() => expect(whole.getByText('pinned')).toBeTruthy());
    expect(whole.queryByTestId('pin')).toBeNull();
  });
});

describe('presets', () => {
  test('set the options of the next question, and can be gone back to', async () => {
    const { api } = await open();
    await fireEvent.click(screen.getByTestId('preset-document'));
    expect(screen.queryByTestId('preset-changed')).toBeNull();
    const sinks = screen.getByLabelText('First tokens');
    await fireEvent.change(sinks, { target: { value: '9' } });
    await screen.findByTestId('preset-changed');
    await type('Budgets?');
    await enter();
    expect(sent(api)[0]?.[1]).toMatchObject({
      cache: { policy: 'expected', sinks: 9, recall: true },
    });
    await fireEvent.click(screen.getByTestId('advanced-reset'));
    expect((sinks as HTMLInputElement).value).toBe('4');
    expect(screen.queryByTestId('preset-changed')).toBeNull();
  });

  test('the warning stands in the window whatever else does', async () => {
    await open();
    expect(screen.getByTestId('lossy-notice').textContent).toMatch(/lossy.*medical, legal/);
    expect(screen.getByTestId('warning').textContent).toMatch(/check its answers/);
  });
});

describe('layers', () => {
  test('are not asked for while nobody looks at them', async () => {
    const { api, app } = await askAboutGuide();
    await waitFor(() => expect(app.chats.busy).toBe(false));
    expect(api.calls.some(([name]) => name === 'showLayers')).toBe(false);
  });
});

describe('the policies', () => {
  test('are folded away but for the recommended one, and say when another is chosen', async () => {
    await open();
    const more = screen.getByTestId<HTMLDetailsElement>('more-policies');
    expect(more.open).toBe(false);
    expect(more.querySelector('[data-testid="policy-h2o"]')).toBeNull();
    await fireEvent.click(screen.getByTestId('policy-expected'));
    expect(more.querySelector('summary')?.textContent.trim()).toBe(
      'More policies: expected is chosen',
    );
  });
});

describe('chats', () => {
  const chat = (id: string, title: string) => ({
    summary: { id, title, updated_ms: Date.now(), pinned: false },
    messages: [message(1, 'user', title), message(2, 'assistant', 'Stored.', { finish: 'eos' })],
  });

  test('a deleted chat comes back with Undo', async () => {
    const { api } = await open({ chats: [chat('a', 'First'), chat('b', 'Second')] });
    await screen.findByText('First');
    await fireEvent.click(screen.getByLabelText('Delete First'));
    expect(screen.queryByTitle('First')).toBeNull();
    expect(api.calls).toContainEqual(['deleteChat', 'a']);
    await fireEvent.click(await screen.findByTestId('toast-action'));
    await waitFor(() => expect(screen.getByTitle('First')).toBeTruthy());
    expect(api.calls).toContainEqual(['restoreChat', 'a']);
  });

  const choose = async (title: string, item: string) => {
    await fireEvent.click(await screen.findByLabelText(`More about ${title}`));
    await fireEvent.click(await screen.findByTestId(item));
  };

  test('a chat is renamed in place', async () => {
    const { api } = await open({ chats: [chat('a', 'First')] });
    await choose('First', 'chat-rename');
    const field = await screen.findByLabelText('Name of the chat');
    await fireEvent.input(field, { target: { value: 'Better' } });
    await fireEvent.keyDown(field, { key: 'Enter' });
    expect(api.calls).toContainEqual(['renameChat', 'a', 'Better']);
    expect(screen.getByTitle('Better')).toBeTruthy();
  });

  test('a pinned chat stands at the top', async () => {
    const { api } = await open({ chats: [chat('a', 'First'), chat('b', 'Second')] });
    await choose('Second', 'chat-pin');
    expect(api.calls).toContainEqual(['pinChat', 'b', true]);
    await waitFor(() =>
      expect(screen.getAllByTestId('chat-item').map((item) => item.textContent.trim())).toEqual([
        'Second',
        'First',
      ]),
    );
    expect(within(screen.getByLabelText('Pinned', { selector: 'section' })).getByTitle('Second'));
  });

  test('a chat is exported through its menu, which the keyboard reaches', async () => {
    const { api } = await open({ chats: [chat('a', 'First')] });
    const more = await screen.findByLabelText('More about First');
    await fireEvent.click(more);
    const menu = await screen.findByRole('menu');
    await waitFor(() => expect(document.activeElement).toBe(screen.getByTestId('chat-pin')));
    await fireEvent.keyDown(menu, { key: 'ArrowDown' });
    await fireEvent.keyDown(menu, { key: 'ArrowDown' });
    expect(document.activeElement).toBe(screen.getByTestId('chat-markdown'));
    await fireEvent.click(screen.getByTestId('chat-json'));
    expect(api.calls).toContainEqual(['exportChat', 'a', 'json']);
    await screen.findByText('Written to /home/me/chat.json.');
    await fireEvent.click(more);
    await fireEvent.keyDown(await screen.findByRole('menu'), { key: 'Escape' });
    expect(screen.queryByRole('menu')).toBeNull();
  });

  test('a dropped chat is imported and opened', async () => {
    const { api } = await open({ files: new Map([['/d/chat.json', text('{}')]]) });
    api.drag({ type: 'drop', paths: ['/d/chat.json'] });
    await screen.findByText('Imported question');
    expect(api.calls).toContainEqual(['importChat', '/d/chat.json']);
  });

  test('Ctrl+K searches; a hit opens the chat where it stands; Esc brings the list back', async () => {
    await open({ chats: [chat('a', 'First'), chat('b', 'Second')] });
    await screen.findByText('First');
    await fireEvent.keyDown(composer(), { key: 'k', ctrlKey: true });
    const field = screen.getByTestId<HTMLInputElement>('search');
    await waitFor(() => expect(document.activeElement).toBe(field));
    await fireEvent.input(field, { target: { value: 'second' } });
    const [hit] = await screen.findAllByTestId('search-hit');
    expect(screen.getAllByTestId('search-result')).toHaveLength(1);
    expect(hit?.querySelector('mark')?.textContent).toBe('Second');
    if (hit) await fireEvent.click(hit);
    await screen.findByText('Stored.');
    expect(document.querySelector('.flashed')).toBeTruthy();
    await fireEvent.keyDown(field, { key: 'Escape' });
    await waitFor(() => expect(screen.getAllByTestId('chat-item')).toHaveLength(2));
  });

  test('an answer that goes on while its chat is opened is taken up where it stands', async () => {
    const stored = chat('a', 'First');
    stored.messages[1] = message(2, 'assistant', 'Half of ', { writing: true, generated: 2 });
    const { api } = await open({ chats: [stored] });
    await fireEvent.click(await screen.findByTitle('First'));
    await screen.findByText('Half of');
    const token = (generated: number, more: string) =>
      api.emit({
        type: 'worker',
        event: { type: 'token', session: 'a', text: more, generated, tok_s: 9 },
      });
    token(2, 'of ');
    token(3, 'it.');
    await waitFor(() =>
      expect(screen.getByTestId('assistant-message').textContent).toContain('Half of it.'),
    );
  });

  test('a question asked while the model still loads is sent, and says what it waits for', async () => {
    const { api } = await open({ model: null });
    api.emit({ type: 'status', status: { state: 'loading', name: 'SmolLM2', fraction: 0.4 } });
    await type('Budgets?');
    expect(screen.getByTestId<HTMLButtonElement>('send').disabled).toBe(false);
    api.hold = true;
    await enter();
    await screen.findByText('Waiting for the model');
  });

  test('a chat whose cache is being restored says so until it is there or refused', async () => {
    const { api } = await open({ chats: [chat('n', 'Notes')] });
    await fireEvent.click(await screen.findByTitle('Notes'));
    const empty = () => screen.getByTestId('heatmap-empty').textContent.trim();
    await waitFor(() => expect(empty()).toMatch(/^This chat is not in memory now/));
    api.emit({ type: 'snapshot', chat: 'n', work: 'restoring' });
    await waitFor(() =>
      expect(empty()).toBe('What the model held of this chat is being restored…'),
    );
    api.emit({ type: 'snapshot', chat: 'n', work: null });
    await waitFor(() => expect(empty()).toMatch(/^This chat is not in memory now/));
  });

  test('a question says what it waits for: its chat’s file, or another answer', async () => {
    const { api } = await open({ chats: [chat('n', 'Notes')] });
    api.hold = true;
    await type('First?');
    await enter();
    const how = () => screen.getByTestId('prefill-mode').textContent;
    await waitFor(() => expect(how()).toBe('Reading'));
    const [first] = api.chatIds().filter((id) => id !== 'n');
    const prefill = { done: 10, total: 20, tok_s: 5, remaining_s: 2, mode: 'exact' as const };
    const event = { type: 'prefill' as const, session: first ?? '', ...prefill };
    api.emit({ type: 'worker', event });
    await waitFor(() => expect(how()).toBe('Reading exactly (layer by layer)'));

    await fireEvent.click(await screen.findByTitle('Notes'));
    await screen.findByText('Stored.');
    await type('Second?');
    await enter();
    await waitFor(() => expect(how()).toBe('Waiting until another answer is written'));
    api.emit({ type: 'snapshot', chat: 'n', work: 'saving' });
    await waitFor(() => expect(how()).toMatch(/^Saving what the model holds of this chat/));
  });

  test('a budget that cannot be had is said, and ends no answer', async () => {
    const { api } = await open({ chats: [chat('a', 'First')] });
    await fireEvent.click(await screen.findByTitle('First'));
    const message = 'There is no memory for that budget.';
    api.emit({ type: 'worker', event: { type: 'failed', session: 'a', code: 'oom', message } });
    await screen.findByText(message);
    expect(screen.queryByTestId('failure')).toBeNull();
  });

  test('when the worker dies the answer says so and the window goes on', async () => {
    const { api } = await open({ pace: 1 });
    await type('Budgets?');
    await enter();
    await screen.findByTestId('stop');
    const session = api.chatIds()[0] ?? '';
    const gone = 'The engine stopped while it wrote this answer.';
    api.emit(
      { type: 'status', status: { state: 'restarting', message: 'Starting the engine again.' } },
      { type: 'worker', event: { type: 'failed', session, code: 'worker_lost', message: gone } },
    );
    await waitFor(() =>
      expect(screen.getByTestId('banner').textContent).toContain('Starting the engine again.'),
    );
    expect(screen.getByTestId('failure').textContent).toBe(gone);
    expect(screen.getByTestId('send')).toBeTruthy();
  });
});

test('preferences survive a restart of the window', async () => {
  const { app } = await open();
  app.setBudget(512);
  await fireEvent.click(screen.getByTestId('policy-window'));
  await fireEvent.click(screen.getByTestId('recall'));
  app.prefs.sampling.temperature = 0;
  app.prefs.save();
  const again = new App(new PreviewApi(), localStorage, noPdf);
  expect(again.prefs.cacheOptions).toMatchObject({ budget: 512, policy: 'window', recall: false });
  expect(again.prefs.nextSampling.temperature).toBe(0);
});

test('the system prompt goes before the first question of a new chat, and is shown there', async () => {
  const { api, app } = await open();
  app.prefs.systemPrompt = 'Answer briefly.';
  await type('Budgets?');
  await enter();
  expect(sent(api)[0]?.[1]).toMatchObject({ chat: null, system: 'Answer briefly.' });
  const shown = await screen.findByTestId('system-message');
  expect(within(shown).getByText('Answer briefly.')).toBeTruthy();
});

describe('keys', () => {
  const press = (key: string) => fireEvent.keyDown(window, { key, ctrlKey: true });

  test('Ctrl+/ shows them all, Ctrl+, the settings, Ctrl+B and Ctrl+I the panels', async () => {
    const { app } = await open();
    await press('/');
    const sheet = screen.getByTestId<HTMLDialogElement>('shortcuts');
    expect(sheet.open).toBe(true);
    for (const key of ['N', 'K', 'B', 'I', ',', '/', 'Esc', 'Enter', 'F2', 'Del'])
      expect(within(sheet).getAllByText(key).length).toBeGreaterThan(0);
    await fireEvent.click(within(sheet).getByLabelText('Close'));
    expect(app.shortcutsOpen).toBe(false);
    await press(',');
    expect(screen.getByTestId<HTMLDialogElement>('settings').open).toBe(true);
    await press('b');
    await press('i');
    expect([app.prefs.sidebar, app.prefs.inspector]).toEqual([false, false]);
  });
});

describe('in Chinese', () => {
  test('the whole window changes over at once, and back, and remembers', async () => {
    const { app } = await open();
    app.settingsOpen = true;
    await tick();
    await fireEvent.click(screen.getByTestId('language-zh'));
    expect(document.documentElement.lang).toBe('zh-CN');
    expect(screen.getByTestId('new-chat').getAttribute('aria-label')).toBe('新对话');
    expect(composer().placeholder).toBe('输入问题，或拖入文档…');
    expect(new App(new PreviewApi(), localStorage, noPdf).prefs.language).toBe('zh');
    await fireEvent.click(screen.getByTestId('language-en'));
    expect(screen.getByTestId('new-chat').getAttribute('aria-label')).toBe('New chat');
  });

  test('an error is said in Chinese, with the original beside it', async () => {
    const { api, app } = await open();
    app.prefs.language = 'zh';
    const message = 'No model is open; choose one first.';
    const failed = { type: 'failed', session: null, code: 'no_model', message } as const;
    api.emit({ type: 'worker', event: failed });
    const toasts = screen.getByTestId('toasts');
    await waitFor(() => expect(toasts.textContent).toContain('没有打开的模型；请先选择一个。'));
    expect(within(toasts).getByText(message).lang).toBe('en');
  });
});
