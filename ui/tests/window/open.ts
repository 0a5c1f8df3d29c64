import { fireEvent, render, screen, waitFor } from '@testing-library/svelte';
import { expect } from 'vitest';
import Root from '../../src/App.svelte';
import { App } from '../../src/lib/state/app.svelte';
import { PreviewApi, type PreviewOptions } from '../preview/api';
import './webview';

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
