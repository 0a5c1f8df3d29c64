import { numbersOf } from '../numbers';

const { count, plural, word } = numbersOf('en');

const are = (n: number) =>
  `${plural(n, { one: 'token', other: 'tokens' })} ${word(n, { one: 'is', other: 'are' })}`;

export const heatmap = {
  title: 'What the model holds',
  kept: (share: string) => `${share} kept`,
  notInMemory: 'This chat is not in memory now. It is read again with your next question.',
  restoring: 'What the model held of this chat is being restored…',
  empty:
    'Once a question is asked, every token of the chat has its place here: tall where the model still holds it, flat where it was evicted.',
  tip: (n: number, state: string) => `token ${count(n)} · ${state}`,
  /** States of a position, where it is pointed at. */
  states: {
    unread: 'not read yet',
    forgotten: 'forgotten',
    store: 'in store only',
    kept: (share: string) => `kept ${share}`,
    pinned: 'pinned',
    recent: 'recent',
  },
  legend: {
    kept: 'kept (height = share)',
    store: 'in store only',
    forgotten: 'forgotten',
    recent: 'recent',
    pinned: 'pinned',
    unread: 'not read yet',
  },
  summary: {
    none: 'No context yet.',
    context: (n: number, share: string) =>
      `Context of ${plural(n, { one: 'token', other: 'tokens' })}, ${share} of it in the hot cache.`,
    store: (n: number) => `${are(n)} only in the store.`,
    forgotten: (n: number) => `${are(n)} forgotten.`,
    pinned: (n: number) => `${are(n)} pinned.`,
    allKept: 'Nothing is mostly evicted.',
    separator: ' ',
  },
  leftOut: {
    evicted: (names: string) => `Mostly evicted now: ${names}.`,
    forgotten: (names: string) => `Forgotten, at least in part: ${names}.`,
    more: (names: string, n: number) => `${names}; and ${count(n)} more`,
    separator: '; ',
    allPages: 'all pages',
    page: (page: number) => `page ${page}`,
    pages: (first: number, last: number) => `pages ${first}–${last}`,
    somePages: (n: number, all: number) => `${count(n)} of ${count(all)} pages`,
  },
  names: {
    template: 'Chat template',
    system: 'System prompt',
    otherBranch: 'Another branch',
    document: 'Document',
    question: (n: number) => `Question ${n}`,
    answer: (n: number) => `Answer ${n}`,
    /** The same within a sentence. */
    within: (name: string) => name.replace(/^./, (c) => c.toLowerCase()),
    page: (document: string, page: number) => `${document}, page ${page}`,
    shortPage: (page: number) => `p. ${page}`,
    shortPageOf: (document: string, page: string) => `${document}, ${page}`,
    markPage: (page: number) => `p${page}`,
    markQuestion: (n: number) => `Q${n}`,
    markAnswer: (n: number) => `A${n}`,
  },
};
