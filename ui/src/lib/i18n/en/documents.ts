import { numbersOf } from '../numbers';

const { count, plural } = numbersOf('en');

export const documents = {
  pages: (n: number) => plural(n, { one: 'page', other: 'pages' }),
  tokens: (n: number) => plural(n, { one: 'token', other: 'tokens' }),
  locked: 'locked',
  reading: 'reading…',
  readingPage: (page: number, all: number) => `page ${count(page)} of ${count(all)}`,
  readingLabel: (name: string) => `Reading ${name}`,
  notAttached: 'not attached',
  counting: 'counting…',
  tokensUnknown: 'tokens unknown until a model is open',
  cancelReading: (name: string) => `Cancel reading ${name}`,
  remove: 'Remove',
  removeNamed: (name: string) => `Remove ${name}`,
  password: 'Password of this PDF',
  passwordOf: (name: string) => `Password of ${name}`,
  unlock: 'Open',
  wrongPassword: 'That password is wrong. Try another one.',
  drop: 'Drop to attach',
  dropKinds: 'PDF, text or Markdown. A .gguf file opens as a model.',
  wrongKind: 'Cistern reads PDF, .txt and .md files. Convert this one first.',
  empty: 'This file is empty.',
  pdf: {
    cancelled: 'Reading was cancelled.',
    password: 'This PDF needs a password to be read.',
    broken: 'This file is damaged or is not a PDF, so it cannot be read.',
    unreadable: (detail: string) => `This PDF could not be read (${detail}).`,
    allDamaged: 'This PDF is damaged: none of its pages could be read.',
    blank: 'This PDF is blank: there is no text in it.',
    allImages: (pages: number) =>
      pages === 1
        ? 'Page 1 is an image without text. Run it through OCR first, then attach the result.'
        : `All ${count(pages)} pages are images without text. Run the file through OCR first, then attach the result.`,
    images: (pages: string, n: number) =>
      n === 1
        ? `Page ${pages} is an image without text.`
        : `Pages ${pages} are images without text.`,
    damaged: (pages: string, n: number) =>
      n === 1
        ? `Page ${pages} is damaged and could not be read.`
        : `Pages ${pages} are damaged and could not be read.`,
  },
};
