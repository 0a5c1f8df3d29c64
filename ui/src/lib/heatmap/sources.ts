import { overlap, type Range } from '../cache/ranges';
import { t } from '../i18n';
import type { DocumentInfo, Span, StoredMessage } from '../ipc/types';
import type { Held } from './states';

/** What is held of some positions. */
export interface Share {
  tokens: number;
  /** Kept fraction over what has been read of it, 0 to 1. */
  kept: number;
  /** Tokens of which only the store holds anything. */
  store: number;
  /** Tokens of which nothing is left. */
  forgotten: number;
  /** Where it stands, as far as it has been read. */
  ranges: Range[];
}

/** A part of the context that a person would name: a document, a question, an answer. */
export interface Source extends Share {
  key: string;
  name: string;
  /** Index into the chat's messages; `null` for what the chat does not show. */
  message: number | null;
  /** Pinned by the engine itself, while there is room. */
  own: boolean;
  pages: PageShare[];
}

export interface PageShare extends Share {
  page: number;
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
  #pages: Map<string, Span> | undefined;

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

  /** Where a document came into the chat. */
  find(id: number): { message: number; document: number } | null {
    for (const [message, { documents }] of this.messages.entries()) {
      const document = documents.findIndex((info) => info.id === id);
      if (document >= 0) return { message, document };
    }
    return null;
  }

  /** The document that a page belongs to. */
  documentOf(span: Span): DocumentInfo | undefined {
    const index = this.#index(span);
    if (span.kind.type !== 'page' || index === null) return undefined;
    return this.messages[index]?.documents[span.kind.document];
  }

  /** What the model reads of a page. */
  pageSpan(message: number, document: number, page: number): Span | undefined {
    this.#pages ??= new Map(
      this.spans.flatMap((span): [string, Span][] => {
        if (span.kind.type !== 'page') return [];
        return [[`${this.#index(span)}/${span.kind.document}/${span.kind.page}`, span]];
      }),
    );
    return this.#pages.get(`${message}/${document}/${page}`);
  }

  /** What the model reads of a message's own words. */
  textSpan(message: number): Span | undefined {
    return this.spans.find((span) => span.kind.type === 'text' && this.#index(span) === message);
  }

  /** The spans of which something lies in `start..end`. */
  spansIn(start: number, end: number): Span[] {
    return this.spans.filter((span) => span.start < end && start < span.end);
  }

  /** The shortest name that is clear beside the document's; `null` for what no person wrote. */
  label(span: Span): string | null {
    if (span.kind.type === 'template') return null;
    const { names } = t.heatmap;
    if (span.kind.type === 'text') return names.within(this.#name(span));
    const index = this.#index(span);
    const name = this.#documentName(index, span.kind.document);
    const pages = index === null ? 0 : this.messages[index]?.documents[span.kind.document]?.pages;
    if (pages === 1) return name;
    return names.shortPage(span.kind.page);
  }

  /** Turns first: where there is no room for every label, pages give way. */
  marks(): Mark[] {
    const { names } = t.heatmap;
    const marks = this.spans.flatMap((span): Mark[] => {
      if (span.kind.type === 'page') {
        return [{ at: span.start, kind: 'page', label: names.markPage(span.kind.page) }];
      }
      const index = this.#index(span);
      if (span.kind.type !== 'text' || span.kind.role === 'system' || index === null) return [];
      const mark = span.kind.role === 'user' ? names.markQuestion : names.markAnswer;
      return [{ at: span.start, kind: 'turn', label: mark(this.#turns[index] ?? 0) }];
    });
    return [...marks.filter((m) => m.kind === 'turn'), ...marks.filter((m) => m.kind === 'page')];
  }

  /** What is held of everything in the context, in its order. */
  sources(held: Held, total: number): Source[] {
    const sources = new Map<string, Source>();
    const add = (
      key: string,
      about: Pick<Source, 'name' | 'message' | 'own'>,
      start: number,
      end: number,
    ) => {
      const share = shareOf(held, start, end);
      const known = sources.get(key);
      const source = known ?? { key, ...about, ...NOTHING, pages: [] };
      Object.assign(source, joined(source, share));
      sources.set(key, source);
      return { source, share };
    };
    let laidOut = 0;
    for (const span of this.spans) {
      laidOut = span.end;
      const index = this.#index(span);
      if (span.kind.type === 'page') {
        const name = this.#documentName(index, span.kind.document);
        const key = `${index}/${span.kind.document}`;
        const about = { name, message: index, own: false };
        const { source, share } = add(key, about, span.start, span.end);
        source.pages.push({ page: span.kind.page, ...share });
      } else {
        const name = this.#name(span);
        const shown = span.kind.type === 'text' && index !== null;
        const own = span.kind.type === 'template' || span.kind.role === 'system';
        const about = { name, message: shown ? index : null, own };
        add(shown ? `${index}` : name, about, span.start, span.end);
      }
    }
    if (total > laidOut && this.messages.length > 0) {
      const message = this.messages.length - 1;
      const about = { name: this.#textName(message), message, own: false };
      add(`${message}`, about, laidOut, total);
    }
    return [...sources.values()];
  }

  #index(span: Span): number | null {
    if (span.message === null) return null;
    const index = span.message - this.#hidden;
    return index >= 0 ? index : null;
  }

  #name(span: Span): string {
    if (span.kind.type === 'template') return t.heatmap.names.template;
    const index = this.#index(span);
    if (span.kind.type === 'page') {
      return t.heatmap.names.page(this.#documentName(index, span.kind.document), span.kind.page);
    }
    if (span.kind.role === 'system') return t.heatmap.names.system;
    return index === null ? t.heatmap.names.otherBranch : this.#textName(index);
  }

  #documentName(message: number | null, document: number): string {
    const name = message === null ? undefined : this.messages[message]?.documents[document]?.name;
    return name || t.heatmap.names.document;
  }

  #textName(index: number): string {
    const { question, answer } = t.heatmap.names;
    const turn = this.#turns[index] ?? 0;
    return this.messages[index]?.role === 'user' ? question(turn) : answer(turn);
  }
}

const NOTHING: Share = { tokens: 0, kept: 0, store: 0, forgotten: 0, ranges: [] };

function shareOf({ kept, seen, forgotten }: Held, start: number, end: number): Share {
  const read = Math.max(start, Math.min(end, seen, kept.length));
  let sum = 0;
  let cold = 0;
  for (let p = start; p < read; p += 1) {
    const value = kept[p] ?? 0;
    sum += value;
    if (value === 0) cold += 1;
  }
  const lost = Math.min(cold, overlap(forgotten, start, read));
  return {
    tokens: end - start,
    kept: read > start ? sum / 255 / (read - start) : 0,
    store: cold - lost,
    forgotten: lost,
    ranges: read > start ? [[start, read]] : [],
  };
}

function joined(a: Share, b: Share): Share {
  const [readA, readB] = [readTokens(a), readTokens(b)];
  const ranges = [...a.ranges];
  for (const [start, end] of b.ranges) {
    const last = ranges.at(-1);
    if (last?.[1] === start) ranges[ranges.length - 1] = [last[0], end];
    else ranges.push([start, end]);
  }
  return {
    tokens: a.tokens + b.tokens,
    kept: readA + readB > 0 ? (a.kept * readA + b.kept * readB) / (readA + readB) : 0,
    store: a.store + b.store,
    forgotten: a.forgotten + b.forgotten,
    ranges,
  };
}

/** How much of it the model has read. */
export function readTokens({ ranges }: Share): number {
  return ranges.reduce((sum, [start, end]) => sum + end - start, 0);
}

/** What is mostly gone from the hot cache, and what is nowhere any more; nothing where all is well. */
export function leftOut(sources: Source[]): string | undefined {
  const says = t.heatmap.leftOut;
  const evicted = named(
    sources,
    (share) => share.kept < 0.15 && share.forgotten === 0 && readTokens(share) > 0,
  );
  const forgotten = named(sources, (share) => share.forgotten > 0);
  const sentences = [
    evicted && says.evicted(evicted),
    forgotten && says.forgotten(forgotten),
  ].filter(Boolean);
  return sentences.length > 0 ? sentences.join(t.heatmap.summary.separator) : undefined;
}

function named(sources: Source[], is: (share: Share) => boolean): string | undefined {
  const names = sources.flatMap((source) => {
    if (source.pages.length > 1) {
      const pages = source.pages.filter(is).map((p) => p.page);
      return pages.length > 0
        ? [t.heatmap.names.shortPageOf(source.name, pagesOf(pages, source.pages.length))]
        : [];
    }
    return is(source) && source.tokens >= 16 ? [source.name] : [];
  });
  if (names.length === 0) return undefined;
  const shown = names.slice(0, 3).join(t.heatmap.leftOut.separator);
  return names.length > 3 ? t.heatmap.leftOut.more(shown, names.length - 3) : shown;
}

function pagesOf(pages: number[], all: number): string {
  const says = t.heatmap.leftOut;
  if (pages.length === all) return says.allPages;
  if (pages.length === 1) return says.page(pages[0] ?? 0);
  const contiguous = pages.every((page, i) => i === 0 || page === (pages[i - 1] ?? 0) + 1);
  if (contiguous) return says.pages(pages[0] ?? 0, pages.at(-1) ?? 0);
  return says.somePages(pages.length, all);
}
