import type { Span, StoredMessage } from '../ipc/types';

/** A part of the context that a person would name: a document, a question, an answer. */
export interface Source {
  key: string;
  name: string;
  /** Index into the chat's messages; `null` for what the chat does not show. */
  message: number | null;
  tokens: number;
  /** Kept fraction over its positions, 0 to 1. */
  kept: number;
  pages: PageShare[];
}

export interface PageShare {
  page: number;
  tokens: number;
  kept: number;
}

/** Where something begins, to be marked on the strip. */
export interface Mark {
  at: number;
  kind: 'page' | 'turn';
  label: string;
}

/** What the positions of a context stand for, in the words of the chat. */
export class Outline {
  /** The worker may count a system prompt that the chat does not show. */
  readonly #hidden: number;
  /** Number of the question that each message belongs to. */
  readonly #turns: number[] = [];

  constructor(
    readonly spans: Span[],
    readonly messages: StoredMessage[],
  ) {
    let turn = 0;
    for (const message of messages) {
      if (message.role === 'user') turn += 1;
      this.#turns.push(turn);
    }
    const system = spans.some(
      (s) => s.message === 0 && s.kind.type === 'text' && s.kind.role === 'system',
    );
    this.#hidden = system && messages[0]?.role !== 'system' ? 1 : 0;
  }

  spanAt(position: number): Span | undefined {
    let low = 0;
    let high = this.spans.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      const span = this.spans[middle];
      if (!span) return undefined;
      if (position < span.start) high = middle - 1;
      else if (position >= span.end) low = middle + 1;
      else return span;
    }
    return undefined;
  }

  /** Index into the chat's messages of what stands at a position. */
  messageAt(position: number, total: number): number | null {
    const span = this.spanAt(position);
    if (span) return this.#index(span);
    // Past what has been laid out lies the answer that is being written.
    return position < total && this.messages.length > 0 ? this.messages.length - 1 : null;
  }

  nameAt(position: number): string {
    const span = this.spanAt(position);
    if (span) return this.#name(span);
    return this.#textName(this.messages.length - 1);
  }

  pinned(): [number, number][] {
    return this.spans
      .filter(
        (s) => s.kind.type === 'template' || (s.kind.type === 'text' && s.kind.role === 'system'),
      )
      .map((s) => [s.start, s.end]);
  }

  /** Turns first: where there is no room for every label, pages give way. */
  marks(): Mark[] {
    const marks = this.spans.flatMap((span): Mark[] => {
      if (span.kind.type === 'page') {
        return [{ at: span.start, kind: 'page', label: `p${span.kind.page}` }];
      }
      const index = this.#index(span);
      if (span.kind.type !== 'text' || span.kind.role === 'system' || index === null) return [];
      const letter = span.kind.role === 'user' ? 'Q' : 'A';
      return [{ at: span.start, kind: 'turn', label: `${letter}${this.#turns[index] ?? 0}` }];
    });
    return [...marks.filter((m) => m.kind === 'turn'), ...marks.filter((m) => m.kind === 'page')];
  }

  /** Tokens and kept share of everything in the context, in its order. */
  sources(kept: Uint8Array, total: number): Source[] {
    const sources = new Map<string, Source & { sum: number }>();
    const add = (key: string, name: string, message: number | null, start: number, end: number) => {
      let source = sources.get(key);
      if (!source) {
        source = { key, name, message, tokens: 0, kept: 0, pages: [], sum: 0 };
        sources.set(key, source);
      }
      let sum = 0;
      for (let p = start; p < end; p += 1) sum += kept[p] ?? 0;
      source.tokens += end - start;
      source.sum += sum / 255;
      return { source, kept: end > start ? sum / 255 / (end - start) : 0 };
    };
    let laidOut = 0;
    for (const span of this.spans) {
      laidOut = span.end;
      const index = this.#index(span);
      if (span.kind.type === 'page') {
        const name = this.#documentName(index, span.kind.document);
        const key = `${index}/${span.kind.document}`;
        const { source, kept: share } = add(key, name, index, span.start, span.end);
        source.pages.push({ page: span.kind.page, tokens: span.end - span.start, kept: share });
      } else {
        const name = this.#name(span);
        const shown = span.kind.type === 'text' && index !== null;
        add(shown ? `${index}` : name, name, shown ? index : null, span.start, span.end);
      }
    }
    if (total > laidOut && this.messages.length > 0) {
      const index = this.messages.length - 1;
      add(`${index}`, this.#textName(index), index, laidOut, total);
    }
    return [...sources.values()].map(({ sum, ...source }) => ({
      ...source,
      kept: source.tokens > 0 ? sum / source.tokens : 0,
    }));
  }

  #index(span: Span): number | null {
    if (span.message === null) return null;
    const index = span.message - this.#hidden;
    return index >= 0 ? index : null;
  }

  #name(span: Span): string {
    if (span.kind.type === 'template') return 'Chat template';
    const index = this.#index(span);
    if (span.kind.type === 'page') {
      return `${this.#documentName(index, span.kind.document)}, page ${span.kind.page}`;
    }
    return span.kind.role === 'system' || index === null ? 'System prompt' : this.#textName(index);
  }

  #documentName(message: number | null, document: number): string {
    return (message !== null && this.messages[message]?.documents[document]?.name) || 'Document';
  }

  #textName(index: number): string {
    return `${this.messages[index]?.role === 'user' ? 'Question' : 'Answer'} ${this.#turns[index] ?? 0}`;
  }
}

/** One sentence on what is mostly gone from the hot cache, or nothing. */
export function leftOut(sources: Source[]): string | undefined {
  const gone = sources.flatMap((source) => {
    if (source.pages.length > 1) {
      const pages = source.pages.filter((p) => p.kept < 0.15).map((p) => p.page);
      return pages.length > 0 ? [`${source.name}, ${pagesOf(pages, source.pages.length)}`] : [];
    }
    return source.kept < 0.15 && source.tokens >= 16 ? [source.name] : [];
  });
  if (gone.length === 0) return undefined;
  const shown = gone.slice(0, 3).join('; ');
  return `Mostly evicted now: ${shown}${gone.length > 3 ? `; and ${gone.length - 3} more` : ''}.`;
}

function pagesOf(pages: number[], all: number): string {
  if (pages.length === all) return 'all pages';
  if (pages.length === 1) return `page ${pages[0]}`;
  const contiguous = pages.every((page, i) => i === 0 || page === (pages[i - 1] ?? 0) + 1);
  if (contiguous) return `pages ${pages[0]}–${pages.at(-1)}`;
  return `${pages.length} of ${all} pages`;
}
