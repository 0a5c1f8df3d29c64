// @vitest-environment jsdom
import { cleanup, configure, fireEvent, screen, waitFor, within } from '@testing-library/svelte';
import { tick } from 'svelte';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GAUGE } from '../preview/samples';
import { MODEL } from '../preview/api';
import { composer, enter, open, sent, type } from './open';

configure({ asyncUtilTimeout: 10_000 });
beforeEach(() => localStorage.clear());
afterEach(cleanup);

const row = (id: string) => {
  const found = screen.getAllByTestId('model-entry').find((entry) => entry.dataset.id === id);
  if (!found) throw new Error(`there is no row for ${id}`);
  return within(found);
};

test('without a model the window shows where to get one', async () => {
  await open({ model: null });
  const welcome = screen.getByTestId('welcome');
  expect(within(welcome).getByText('First, a model')).toBeTruthy();
  expect(within(welcome).getAllByTestId('model-entry')).toHaveLength(3);
  expect(screen.getByTestId<HTMLButtonElement>('send').disabled).toBe(true);
});

test('a download shows its progress, is paused, gone on with, and given up', async () => {
  const { api } = await open({ model: null });
  await fireEvent.click(screen.getByLabelText(/^Download Qwen3 4B/));
  await screen.findByText('881 MiB of 2.3 GiB · 10.7 MiB/s · 2 min 20 s left');
  await fireEvent.click(screen.getByLabelText('Pause the download of Qwen3 4B'));
  await screen.findByText('Paused at 881 MiB of 2.3 GiB (37%)');
  await fireEvent.click(screen.getByLabelText('Go on with the download of Qwen3 4B'));
  await screen.findByText(/left$/);
  await fireEvent.click(screen.getByLabelText('Give up the download of Qwen3 4B'));
  await waitFor(() => expect(row('qwen3-4b').queryByTestId('fetch-progress')).toBeNull());
  expect(screen.getByLabelText(/^Download Qwen3 4B/)).toBeTruthy();
  expect(api.entries.every((entry) => entry.arrived === null)).toBe(true);
});

test('what an earlier start of the app downloaded can be gone on with', async () => {
  const { api, app } = await open({ model: null });
  api.entries = api.entries.map((entry) =>
    entry.id === 'qwen3-4b' ? { ...entry, arrived: entry.bytes / 2 } : entry,
  );
  await app.models.refresh();
  await screen.findByText('Paused at 1.2 GiB of 2.3 GiB (50%)');
  expect(screen.queryByLabelText(/^Download Qwen3 4B/)).toBeNull();
});

test('a download that failed says why and can be gone on with', async () => {
  const { api } = await open({ model: null });
  const message = 'There is too little room for the model in /models.';
  const fetch = {
    id: 'qwen3-4b',
    phase: 'failed' as const,
    done: 7,
    total: 9,
    bytes_s: 0,
    error: { code: 'disk_full', message },
  };
  api.entries = api.entries.map((entry) => ({
    ...entry,
    arrived: entry.path === null ? 7 : null,
  }));
  api.emit({ type: 'fetch', fetch });
  await waitFor(() =>
    expect(row('qwen3-4b').getByTestId('fetch-failed').textContent).toBe(message),
  );
  await waitFor(() => expect(row('qwen3-4b').getByTestId('resume-fetch')).toBeTruthy());
});

test('each model says whether it fits the memory that is measured, at the budget', async () => {
  const { api, app } = await open({ model: null });
  app.setBudget(1024);
  await waitFor(() =>
    expect(row('qwen3-4b').getByTestId('fit').textContent).toMatch(
      /^\s*fits about 2\.7 GiB of 9\.9 GiB free$/,
    ),
  );
  expect(row('llama-3.1-8b').getByTestId('fit').textContent).toMatch(/tight about 8\.4 GiB/);
  app.setBudget(32_768);
  await waitFor(() =>
    expect(row('llama-3.1-8b').getByTestId('fit').textContent).toMatch(/does not fit/),
  );
  api.emit({ type: 'gauge', gauge: GAUGE });
  await tick();
  expect(row('llama-3.1-8b').getByTestId('fit').textContent.trim()).toBe('about 12.4 GiB');
  api.entries = api.entries.map((entry) => ({ ...entry, memory: null }));
  await app.models.refresh();
  await waitFor(() =>
    expect(row('llama-3.1-8b').getByTestId('fit').textContent.trim()).toBe('memory unknown'),
  );
  expect(document.body.textContent).not.toContain('NaN');
});

test('the budget shows what the open model takes with it', async () => {
  const { app } = await open();
  app.setBudget(1024);
  const budget = within(screen.getByLabelText('Budget', { selector: 'section' }));
  await waitFor(() =>
    expect(budget.getByTestId('fit').textContent).toContain('about 177 MiB of 9.9 GiB free'),
  );
});

test('a model is removed only after a question, and an open one says that it is ejected', async () => {
  const { api, app } = await open();
  api.entries = api.entries.map((entry) => ({
    ...entry,
    removal: entry.path === null ? null : ('delete' as const),
  }));
  await app.models.refresh();
  await fireEvent.click(screen.getByTestId('model-menu'));
  await fireEvent.click(await screen.findByLabelText('Remove SmolLM2 135M Instruct'));
  const ask = within(screen.getByTestId('remove-ask'));
  expect(ask.getByText(/Delete the file and free 93\.5 MiB\?/).textContent).toContain('ejected');
  await fireEvent.click(ask.getByText('Keep'));
  expect(screen.queryByTestId('remove-ask')).toBeNull();
  expect(api.calls.some(([name]) => name === 'removeModel')).toBe(false);

  await fireEvent.click(screen.getByLabelText('Remove SmolLM2 135M Instruct'));
  await fireEvent.click(screen.getByTestId('remove-confirm'));
  expect(api.calls).toContainEqual(['removeModel', MODEL.path]);
  await waitFor(() => expect(screen.queryByLabelText(/^Remove SmolLM2/)).toBeNull());
});

test('a model that rests is named, and a question can be asked all the same', async () => {
  const { api } = await open();
  api.emit({ type: 'status', status: { state: 'sleeping', model: MODEL } });
  await waitFor(() => expect(screen.getByTestId('model-resting').textContent).toBe(MODEL.name));
  await type('Still there?');
  expect(composer().value).toBe('Still there?');
  await enter();
  expect(sent(api)).toHaveLength(1);
});

test('files that Cistern was started with are attached', async () => {
  const { api } = await open({
    files: new Map([['/d/notes.txt', new TextEncoder().encode('Notes.').buffer]]),
  });
  api.emit({ type: 'opened', paths: ['/d/notes.txt'] });
  await screen.findByText('notes.txt');
});

test('the network can be forbidden, and an unused model closed, in the settings', async () => {
  const { api } = await open();
  await fireEvent.click(screen.getByTestId('open-settings'));
  await fireEvent.click(screen.getByTestId('offline'));
  await waitFor(() => expect(api.settings.offline).toBe(true));
  const idle = screen.getByTestId<HTMLInputElement>('idle-minutes');
  expect(idle.value).toBe('');
  await fireEvent.change(idle, { target: { value: '15' } });
  await waitFor(() => expect(api.settings).toEqual({ offline: true, idle_minutes: 15 }));
  await fireEvent.change(idle, { target: { value: '0' } });
  await waitFor(() => expect(api.settings.idle_minutes).toBeNull());
  await waitFor(() => expect(idle.value).toBe(''));
});
