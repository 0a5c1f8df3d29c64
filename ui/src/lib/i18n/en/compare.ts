import { numbersOf } from '../numbers';

const { count, plural } = numbersOf('en');

const words = (n: number) => plural(n, { one: 'word', other: 'words' });

export const compare = {
  title: 'Compare',
  open: 'Compare caches',
  openTitle: 'Compare caches (Ctrl+Shift+C)',
  openThis: 'Compare how caches answer this',
  openThisTitle: 'Compare how caches answer this (Ctrl+Shift+C)',
  says: 'Every column reads the same from the start, one after the other, and answers greedily with one seed: what differs comes from the cache.',
  close: 'Close',
  closeTitle: 'Close (Esc)',
  question: 'Question to compare',
  placeholder: 'What should every column answer?',
  run: 'Compare',
  stop: 'Stop',
  stopping: 'Stopping…',
  needsModel: 'Choose a model first.',
  /** Where the question stands in the conversation. */
  place: (where: 'new' | 'again' | 'next', before: number, documents: string[]) => {
    const parts = [
      {
        new: 'A new chat',
        again: 'The last question of this chat, asked again',
        next: 'The next question of this chat',
      }[where],
    ];
    if (before > 0) parts.push(`after ${plural(before, { one: 'message', other: 'messages' })}`);
    if (documents.length > 0) parts.push(`with ${documents.join(', ')}`);
    return `${parts.join(' ')}.`;
  },
  presets: 'What to compare',
  preset: {
    everything: 'Full against mine',
    policies: 'Three policies',
    budgets: 'Three budgets',
  },
  presetSays: {
    everything: 'What does my budget cost me?',
    policies: 'Which policy keeps the right things?',
    budgets: 'How small may the budget be?',
  },
  add: 'Column',
  atMost: 'at most',
  tokensEach: 'tokens each',
  against: 'Marked against',
  copy: 'Markdown',
  copyTitle: 'Copy question, figures and answers as Markdown',
  copied: 'Copied',
  added: 'underlined',
  addedSays: 'only in this column',
  missing: 'struck out',
  missingSays: (name: string) => `only in ${name}`,
  measured: 'Memory is measured at the end of each answer.',
  column: (name: string, title: string) => `Column ${name}: ${title}`,
  policyOf: (name: string) => `Policy of column ${name}`,
  budgetOf: (name: string) => `Budget of column ${name} in tokens`,
  budgetTitle: 'Budget in tokens; empty follows the free memory',
  auto: 'auto',
  budget: (n: number) => plural(n, { one: 'token', other: 'tokens' }),
  answerOf: (name: string) => `Answer of column ${name}`,
  remove: (name: string) => `Take column ${name} away`,
  everythingKept: 'everything is kept',
  followsFree: 'follows the free memory',
  below: (title: string) => `below: ${title}`,
  reading: 'Reading…',
  readingFor: (name: string) => `Reading for column ${name}`,
  tokensDone: (done: number, all: number) => `${count(done)} / ${count(all)} tokens`,
  left: (duration: string) => `${duration} left`,
  writing: 'Writing…',
  waitsForEngine: 'Waiting for the engine',
  waitsItsTurn: 'Waits its turn',
  leftOut: 'Left out.',
  stopped: 'Stopped.',
  allFits: 'All of it fits in this budget.',
  same: (name: string) => `The same as ${name}, word for word.`,
  /** `from` counts from 1. */
  differs: (name: string, from: number, own: number, of: number, missing: number) =>
    `Differs from ${name} from ${from === 1 ? 'the first word' : `word ${count(from)}`} on: ${count(own)} of ${words(of)} are its own, ${count(missing)} are missing.`,
  use: (title: string) => `Use ${title}`,
  used: (title: string) => `The next question uses ${title}.`,
  ready: 'The comparison is ready.',
  show: 'Show',
  news: {
    ended: 'The comparison has ended.',
    waiting: 'Waiting for the engine.',
    reading: (name: string) => `Column ${name} is being read.`,
    writing: (name: string) => `Column ${name} is being answered.`,
  },
  figure: {
    hot: 'Hot cache',
    store: 'In store',
    prefill: 'Reading',
    ttft: 'First token',
    speed: 'Writing',
  },
  ofTokens: (hot: number, all: number) => `${count(hot)} of ${count(all)} tokens`,
  keptHot: (share: string) => `${share} kept hot`,
  tokens: (n: number) => plural(n, { one: 'token', other: 'tokens' }),
  markdown: {
    title: 'One question under several caches',
    says: (model: string) =>
      `Model: ${model}. Answers are greedy with the same seed: what differs comes from the cache alone.`,
    noAnswer: '(no answer)',
  },
};
