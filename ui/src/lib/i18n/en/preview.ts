import { numbersOf } from '../numbers';

const { count, plural } = numbersOf('en');

const tokens = (n: number) => plural(n, { one: 'token', other: 'tokens' });

/** A document beside the thread, and what of it is kept. */
export const preview = {
  label: (name: string) => `Document ${name}`,
  open: (name: string) => `Show ${name} beside the chat`,
  pages: 'Pages',
  page: (page: number) => `Page ${count(page)}`,
  pageField: 'Page',
  ofPages: (n: number) => `of ${count(n)}`,
  smaller: 'Smaller',
  larger: 'Larger',
  shade: 'Shade the words by what the model holds',
  shadeThread: 'Shade the words of the chat',
  close: 'Close the document',
  closeTitle: 'Close (Esc)',
  loading: 'The document is being opened',
  password: 'Password of this PDF',
  wrongPassword: 'That password is wrong. Try another one.',
  unlock: 'Open',
  notInMemory: 'This chat is not in memory now. It is read again with your next question.',
  pageFailed: 'This page is damaged and cannot be shown.',
  pasted: (opening: string) => `Pasted: ${opening}`,
  insert: 'Insert as text instead',
  insertNamed: (name: string) => `Insert ${name} as text`,
  pins: {
    title: 'Kept in memory',
    keep: 'Keep in memory',
    keepTitle: 'Never evict this passage (Ctrl+Shift+P)',
    unpin: 'Keep no longer',
    unpinNamed: (name: string) => `Keep the passage in ${name} no longer`,
    show: 'Show where it stands',
    tokens,
  },
  layers: {
    title: 'By layer',
    none: 'Nothing has been read yet.',
    says: 'Each row is a layer of the model, the first on top; the stronger its colour, the more it holds of that part.',
    tip: (layer: number, name: string, token: string, share: string) =>
      `Layer ${count(layer)} · ${name}, token ${token} · ${share} held`,
    summary: (layers: number, least: number, leastShare: string, most: number, mostShare: string) =>
      `${plural(layers, { one: 'layer', other: 'layers' })}. Layer ${count(least)} holds the least, ${leastShare}; layer ${count(most)} the most, ${mostShare}.`,
  },
};
