import '@fontsource-variable/inter/wght.css';
import '../../src/app.css';
import { mount } from 'svelte';
import Root from '../../src/App.svelte';
import type { Chat } from '../../src/lib/ipc/types';
import { loadEngine } from '../../src/lib/pdf/pdfjs';
import { App } from '../../src/lib/state/app.svelte';
import { message, PreviewApi, REPLY } from './api';

// The window in an ordinary browser: `npm run dev`, then open /tests/preview/?scene=…
const scene = new URLSearchParams(location.search).get('scene') ?? 'chat';
const theme = new URLSearchParams(location.search).get('theme');

const day = 86_400_000;
const chat = (id: string, title: string, ago: number): Chat => ({
  summary: { id, title, updated_ms: Date.now() - ago, pinned: id === 'b' },
  messages: [
    message(1, 'user', title, {
      documents: [{ id: 1, name: 'guide.pdf', pages: 12, tokens: 6120, copied: false }],
    }),
    message(2, 'assistant', `<think>The person asks about the guide.</think>${REPLY}`, {
      finish: 'eos',
      stats: {
        prefilled: 6160,
        prefill_s: 41,
        recall_s: 0.6,
        looked_again: 0,
        ttft_s: 41.4,
        generated: 141,
        tok_s: 16.8,
      },
    }),
  ],
});

const files = new Map<string, ArrayBuffer>();
const PDFS = [
  'broken-xref',
  'cjk-japanese-90ms-rksj',
  'cjk-vertical-no-tounicode',
  'encrypted-empty-password-aes256r6',
  'encrypted-user-foo-owner-bar',
  'form-field-values',
  'ligatures',
  'rotated90-table',
  'rtl-arabic-latin',
  'scan-image-only',
  'twocol-lorem',
];
for (const name of PDFS) {
  const response = await fetch(`/@fs${import.meta.env.PREVIEW_PDFS}/${name}.pdf`);
  if (response.ok) files.set(`/docs/${name}.pdf`, await response.arrayBuffer());
}

const api = new PreviewApi({
  model: scene === 'first' ? null : undefined,
  pace: Number(new URLSearchParams(location.search).get('pace') ?? '1'),
  files,
  chats:
    scene === 'first'
      ? []
      : [
          chat('a', 'What does the slider do?', 60_000),
          chat('b', 'Summarise the safety chapter', 3_600_000),
          chat('c', 'Compare the 2024 and 2025 budgets line by line', 1.2 * day),
          chat('d', 'Translate section 4', 4 * day),
        ],
});
const storage = theme
  ? {
      getItem: () => JSON.stringify({ theme, budget: scene === 'auto' ? undefined : 1024 }),
      setItem: () => undefined,
    }
  : localStorage;
const app = new App(api, storage, loadEngine);
const target = document.getElementById('app');
if (target) mount(Root, { target, props: { app } });

Object.assign(globalThis, { app, api });
