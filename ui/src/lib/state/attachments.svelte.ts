import { t } from '../i18n';
import { asApiError, type Api } from '../ipc/api';
import type { ApiError, Attachment, PickedFile } from '../ipc/types';
import { extractPdf, type Engine } from '../pdf/extract';
import type { PageResult } from '../pdf/report';
import { decodeText } from '../text/decode';

/** A document in the composer, from the moment it is dropped. */
export class PendingDocument {
  phase = $state<'reading' | 'counting' | 'ready' | 'failed'>('reading');
  pagesDone = $state(0);
  /** `null` until it is known. */
  pagesTotal = $state<number | null>(null);
  /** `null` until a model has counted them. */
  tokens = $state<number | null>(null);
  tokensByPage = $state.raw<number[]>([]);
  /** What came of each page; empty for what is no PDF. */
  results = $state.raw<PageResult[]>([]);
  error = $state.raw<ApiError | null>(null);
  /** The file waits for its password; `wrong` after one that did not open it. */
  password = $state.raw<{ wrong: boolean; answer: (password: string | null) => void } | null>(null);
  pages = $state.raw<string[]>([]);
  readonly abort = new AbortController();

  constructor(
    readonly id: number,
    readonly file: PickedFile,
    /** What was pasted, where it is not a file. */
    readonly pasted: string | null = null,
  ) {}
}

/** A longer paste becomes a document: a chat is read again and again, a document is looked up. */
export const LONGEST_PASTE = 2500;

/** More than this is not put into the composer's field: it would stand still. */
export const LONGEST_INSERT = 50_000;

const TITLE_LEN = 32;

const READABLE = /\.(pdf|txt|md|markdown)$/i;

/** The documents that go with the next question. */
export class Attachments {
  items = $state<PendingDocument[]>([]);
  #next = 1;

  constructor(
    private readonly api: Api,
    private readonly loadEngine: () => Promise<Engine>,
    /** Tokens can be counted only by an open model. */
    private readonly canCount: () => boolean,
  ) {}

  get ready(): boolean {
    return this.items.every((item) => item.phase === 'ready' || item.phase === 'failed');
  }

  /** Tokens of all documents that could be read. */
  get tokens(): number {
    return this.items.reduce((sum, item) => sum + (item.tokens ?? 0), 0);
  }

  add(file: PickedFile): void {
    const same = (item: PendingDocument) => item.pasted === null && item.file.path === file.path;
    if (this.items.some((item) => same(item) && item.phase !== 'failed')) return;
    this.items.push(new PendingDocument(this.#next, file));
    this.#next += 1;
    const item = this.items.at(-1);
    if (item) void this.#read(item);
  }

  /** Takes a long paste as a document of its own, named by how it begins. */
  addText(text: string): void {
    const clean = text.replace(/\r\n?/g, '\n').replaceAll('\u0000', '').trim();
    if (clean === '') return;
    const name = t.preview.pasted(opening(clean));
    const file = { path: '', name, bytes: new Blob([clean]).size };
    this.items.push(new PendingDocument(this.#next, file, clean));
    this.#next += 1;
    const item = this.items.at(-1);
    if (item) void this.#read(item);
  }

  remove(id: number): void {
    const item = this.items.find((i) => i.id === id);
    item?.password?.answer(null);
    item?.abort.abort();
    this.items = this.items.filter((i) => i.id !== id);
  }

  /** Hands the documents over and empties the composer; `restore` brings them back. */
  take(): { documents: Attachment[]; restore: () => void } {
    const taken = this.items.filter((item) => item.phase === 'ready');
    const all = this.items;
    this.items = [];
    return {
      documents: taken.map((item) => ({
        document: { name: item.file.name, pages: item.pages },
        tokens: item.tokens ?? 0,
        file: item.pasted === null ? item.file.path : null,
      })),
      restore: () => (this.items = [...all, ...this.items]),
    };
  }

  /** Another model counts in other tokens. */
  recount(): void {
    for (const item of this.items) {
      if (item.phase === 'ready' || item.phase === 'counting') void this.#count(item);
    }
  }

  async #read(item: PendingDocument): Promise<void> {
    try {
      if (item.pasted !== null) {
        item.pages = [item.pasted];
        item.pagesTotal = 1;
        await this.#count(item);
        return;
      }
      if (!READABLE.test(item.file.name)) {
        throw new Error(t.documents.wrongKind);
      }
      const data = await this.api.readFile(item.file.path);
      if (/\.pdf$/i.test(item.file.name)) {
        const results = await this.#readPdf(item, new Uint8Array(data));
        item.pages = results.map((page) => page.text);
        item.results = results;
      } else {
        const text = decodeText(data);
        if (text === '') throw new Error(t.documents.empty);
        item.pages = [text];
      }
      item.pagesTotal = item.pages.length;
      await this.#count(item);
    } catch (error) {
      if (item.abort.signal.aborted) return;
      item.phase = 'failed';
      item.error = asApiError(error);
    }
  }

  async #readPdf(item: PendingDocument, data: Uint8Array): Promise<PageResult[]> {
    const engine = await this.loadEngine();
    return extractPdf(engine, data, {
      signal: item.abort.signal,
      onProgress: (done, total) => {
        item.pagesDone = done;
        item.pagesTotal = total;
      },
      onPassword: (wrong) =>
        new Promise((resolve) => {
          item.password = {
            wrong,
            answer: (password) => {
              item.password = null;
              resolve(password);
            },
          };
        }),
    });
  }

  async #count(item: PendingDocument): Promise<void> {
    item.tokens = null;
    if (!this.canCount()) {
      item.phase = 'ready';
      return;
    }
    item.phase = 'counting';
    try {
      const counts = await this.api.countTokens(item.pages);
      item.tokensByPage = counts;
      item.tokens = counts.reduce((sum, n) => sum + n, 0);
    } catch {
      // Without a count it can be sent all the same; the count is tried again with the next model.
    }
    item.phase = 'ready';
  }
}

/** The start of a text, cut between words. */
function opening(text: string): string {
  const line = text
    .slice(0, 4 * TITLE_LEN)
    .split(/\s+/)
    .filter(Boolean)
    .join(' ');
  if (line.length <= TITLE_LEN) return line;
  const head = line.slice(0, TITLE_LEN);
  return `${head.includes(' ') ? head.slice(0, head.lastIndexOf(' ')) : head}…`;
}
