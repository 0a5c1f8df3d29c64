import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect, vi } from 'vitest';
import Root from '../../src/App.svelte';
import { App } from '../../src/lib/state/app.svelte';
import { PreviewApi, type PreviewOptions } from '../preview/api';

// What jsdom lacks of a webview.
vi.stubGlobal(
  'ResizeObserver',
  class {
    observe() {}
    disconnect() {}
    unobserve() {}
  },
);
vi.stubGlobal(
  'IntersectionObserver',
  class {
    observe() {}
    disconnect() {}
  },
);
vi.stubGlobal('CSS', { supports: () => true });
vi.stubGlobal('matchMedia', () => ({
  matches: false,
  addEventListener() {},
  removeEventListener() {},
}));
HTMLCanvasElement.prototype.getContext = () => null;
Element.prototype.scrollIntoView = vi.fn();
Element.prototype.scrollTo = vi.fn();
HTMLDialogElement.prototype.showModal = function () {
  this.open = true;
};
HTMLDialogElement.prototype.close = function () {
  this.open = false;
  this.dispatchEvent(new Event('close'));
};

export const noPdf = () => Promise.reject(new Error('no PDF in this test'));

/** The whole window on a scripted API. */
export async function open(options: PreviewOptions = {}) {
  const api = new PreviewApi({ pace: 0, ...options });
  const app = new App(api, localStorage, noPdf);
  render(Root, { app });
  await waitFor(() => expect(screen.getByText('0.1.0')).toBeTruthy());
  return { api, app };
}

export const composer = () => screen.getByTestId<HTMLTextAreaElement>('composer');
export const type = (text: string) => fireEvent.input(composer(), { target: { value: text } });
export const enter = (init: object = {}) =>
  fireEvent.keyDown(composer(), { key: 'Enter', ...init });
export const text = (value: string) => new TextEncoder().encode(value).buffer;
export const sent = (api: PreviewApi) => api.calls.filter(([name]) => name === 'send');
