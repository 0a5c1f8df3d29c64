import { contains, overlap, type Range } from '../../src/lib/cache/ranges';
import type {
  CacheOptions,
  CacheState,
  Event,
  Passage,
  Recalled,
  Span,
  StoredMessage,
} from '../../src/lib/ipc/types';

const KV_BYTES = 22_528;
const STORE_LIMIT = 4 * 2 ** 30;

interface State {
  options: CacheOptions;
  seen: number;
  budget: number;
  peak: number;
  spans: Span[];
  messages: StoredMessage[];
  /** By the person. */
  pins: Range[];
}

/** Stands in for the worker in tests and the preview: the same events, made up but consistent. */
export class FakeWorker {
  readonly #kept = new Map<string, Uint8Array>();
  readonly #state = new Map<string, State>();
  readonly #stopped = new Set<string>();

  constructor(
    private readonly emit: (event: Event) => void,
    private readonly pause: (ms: number) => Promise<void>,
  ) {}

  async answer(
    session: string,
    messages: StoredMessage[],
    options: CacheOptions,
    reply: string,
  ): Promise<string> {
    this.#stopped.delete(session);
    const { spans, total } = layout(messages);
    const before = this.#state.get(session);
    const seen = before?.seen ?? 0;
    const state: State = {
      options,
      seen,
      budget: options.budget ?? 2048,
      peak: before?.peak ?? 0,
      spans,
      messages,
      pins: before?.pins ?? [],
    };
    this.#state.set(session, state);
    this.emit({ type: 'layout', session, n_tokens: total, reused: seen, spans });
    for (let done = 0; done < total - seen;) {
      if (this.#stopped.has(session)) return this.#finish(session, '', total - seen, 0);
      done = Math.min(total - seen, done + 512);
      state.seen = seen + done;
      this.emit({
        type: 'prefill',
        session,
        done,
        total: total - seen,
        tok_s: 148.2,
        remaining_s: (total - seen - done) / 148.2,
        mode: options.prefill === 'streaming' ? 'streaming' : 'exact',
      });
      this.#cache(session);
      await this.pause(180);
    }
    const passages = recalled(spans, state);
    if (passages.length > 0) this.emit({ type: 'recalled', session, passages });
    let text = '';
    let generated = 0;
    for (const piece of reply.match(/\S+\s*/g) ?? []) {
      if (this.#stopped.has(session))
        return this.#finish(session, text, total - seen, generated, 'stopped');
      text += piece;
      generated += 1;
      state.seen += 1;
      this.emit({ type: 'token', session, text: piece, generated, tok_s: 17.3 });
      if (generated % 8 === 0) this.#cache(session);
      await this.pause(45);
    }
    const [last] = messages.slice(-1);
    if (last) state.messages = [...messages, { ...last, role: 'assistant', text, documents: [] }];
    state.spans = layoutDone(spans, messages.length, state.seen);
    const n_tokens = state.seen;
    this.emit({ type: 'layout', session, n_tokens, reused: seen, spans: state.spans });
    this.#cache(session);
    return this.#finish(session, text, total - seen, generated);
  }

  stop(session: string): void {
    this.#stopped.add(session);
  }

  setBudget(session: string, budget: number | null): void {
    const state = this.#state.get(session);
    if (!state) return;
    state.options = { ...state.options, budget };
    state.budget = budget ?? 2048;
    this.#cache(session);
  }

  /** Each page's words, shared out over the tokens that it was said to have. */
  pieces(
    session: string,
    start: number,
    end: number,
    pagesOf: (document: number) => string[] | undefined,
  ): { text: string; lengths: number[] } {
    const state = this.#state.get(session);
    const span = state?.spans.find((s) => s.start === start && s.end === end);
    const message = state?.messages[span?.message ?? -1];
    let text = message?.text ?? 'words that no one wrote';
    if (span?.kind.type === 'page') {
      const { document, page } = span.kind;
      const pages = pagesOf(message?.documents[document]?.id ?? -1) ?? [];
      text = `${pages.length > 1 ? `[Page ${page}]\n` : ''}${pages[page - 1] ?? ''}\n\n`;
    }
    const n = end - start;
    const at = (i: number) => Math.floor((i * text.length) / n);
    return { text, lengths: Array.from({ length: n }, (_, i) => at(i + 1) - at(i)) };
  }

  showLayers(session: string, bins: number): void {
    const state = this.#state.get(session);
    const kept = this.#kept.get(session);
    if (!state || !kept) return;
    const layers = 30;
    let shares = '';
    for (let layer = 0; layer < layers; layer += 1) {
      for (let bin = 0; bin < bins; bin += 1) {
        const mean = kept[Math.floor(((bin + 0.5) * state.seen) / bins)] ?? 0;
        const share = mean === 255 ? 255 : mean * (0.4 + (1.2 * ((layer * 7) % layers)) / layers);
        shares += String.fromCharCode(Math.min(255, Math.round(share)));
      }
    }
    const event = { session, n_seen: state.seen, layers, bins, shares: btoa(shares) };
    this.emit({ type: 'layers', ...event });
  }

  pin(session: string, passage: Passage, pinned: boolean): void {
    const state = this.#state.get(session);
    if (!state || passage.type !== 'range') return;
    const { start, end } = passage;
    const outside = state.pins.flatMap(([from, to]): Range[] => [
      [from, Math.min(to, start)],
      [Math.max(from, end), to],
    ]);
    const pins = [...outside, ...(pinned ? [[start, end] as Range] : [])]
      .filter(([from, to]) => from < to)
      .sort((a, b) => a[0] - b[0]);
    const tokens = pins.reduce((sum, [from, to]) => sum + to - from, 0);
    if (tokens + 16 > state.budget) {
      const message = `${tokens} tokens are pinned, which leaves no room in a budget of ${state.budget}; set at least ${tokens + 16}, or pin less.`;
      this.emit({ type: 'notice', session, code: 'options', message });
    } else state.pins = pins;
    this.#cache(session);
  }

  #finish(
    session: string,
    text: string,
    prefilled: number,
    generated: number,
    reason: 'eos' | 'stopped' = text === '' ? 'stopped' : 'eos',
  ): string {
    const stats = {
      prefilled,
      prefill_s: 20.8,
      recall_s: 0.4,
      looked_again: 0,
      ttft_s: 21.1,
      generated,
      tok_s: 17.3,
    };
    this.emit({ type: 'finished', session, reason, stats });
    return text;
  }

  #cache(session: string): void {
    const state = this.#state.get(session);
    if (!state) return;
    const n = state.seen;
    const before = this.#kept.get(session) ?? new Uint8Array();
    const kept = new Uint8Array(n);
    const over = n > state.budget && state.options.policy !== 'full';
    const recentFrom = n - Math.floor(state.budget / 2);
    const share = over ? state.budget / 2 / Math.max(1, recentFrom) : 1;
    for (let p = 0; p < n; p += 1) {
      const wave = Math.abs(
        Math.sin(p * 0.013) * Math.sin(p * 0.0021 + 1) + 0.3 * Math.sin(p * 0.9),
      );
      const fresh = !over || p < 4 || p >= recentFrom;
      const was = before[p] ?? 255;
      kept[p] = fresh
        ? 255
        : Math.min(was, Math.max(0, Math.round(255 * Math.min(1, share * 4 * wave * wave))));
    }
    // What a small budget pushed out longest ago has left the store as well.
    const forgotten: Range[] = [];
    if (over && n > 8 * state.budget) forgotten.push([Math.floor(n / 4), Math.floor(n / 3)]);
    for (const [start, end] of forgotten) kept.fill(0, start, end);
    const pinned = joined([...ownPins(state.spans, n), ...state.pins]);
    for (const [start, end] of pinned) kept.fill(255, start, Math.min(end, n));
    this.#kept.set(session, kept);
    const hot = over ? Math.min(n, state.budget + (n % 64)) : n;
    state.peak = Math.max(state.peak, hot * KV_BYTES);
    const cache: CacheState = {
      n_seen: n,
      budget: state.budget,
      auto: state.options.budget === null,
      hot_entries: hot,
      hot_bytes: hot * KV_BYTES,
      hot_peak_bytes: state.peak,
      full_bytes: n * KV_BYTES,
      kept: kept.reduce((sum, k) => sum + k, 0) / 255 / Math.max(1, n),
      past_context: false,
      store_bytes: n * KV_BYTES,
      store_limit: STORE_LIMIT,
      pinned: overlap(pinned, 0, n),
    };
    let binary = '';
    for (const byte of kept) binary += String.fromCharCode(byte);
    this.emit({
      type: 'cache',
      session,
      state: cache,
      kept: [{ start: 0, values: btoa(binary) }],
      forgotten: forgotten.flatMap(([start, end]) => outside(start, end, pinned)),
      pinned,
    });
  }
}

/** What the engine pins by itself: the template. */
function ownPins(spans: Span[], n: number): Range[] {
  return spans
    .filter((span) => span.kind.type === 'template' && span.end <= n)
    .map((span) => [span.start, span.end]);
}

function joined(ranges: Range[]): Range[] {
  const all: Range[] = [];
  for (const [start, end] of ranges.sort((a, b) => a[0] - b[0])) {
    const last = all.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(last[1], end);
    else all.push([start, end]);
  }
  return all;
}

function outside(start: number, end: number, ranges: Range[]): Range[] {
  const rest: Range[] = [];
  for (let p = start; p < end; p += 1) {
    if (contains(ranges, p)) continue;
    const last = rest.at(-1);
    if (last?.[1] === p) last[1] = p + 1;
    else rest.push([p, p + 1]);
  }
  return rest;
}

/** Some passages of what is away, as a question would find them. */
function recalled(spans: Span[], { options, budget, seen }: State): Recalled[] {
  if (!options.recall || options.policy === 'full' || seen <= budget) return [];
  const pages = spans.filter((span) => span.kind.type === 'page' && span.end < seen - budget / 2);
  return [2, 0, 5, 3, 6, 4].flatMap((i, rank): Recalled[] => {
    const page = pages[i];
    return page
      ? [{ start: page.start + 20, end: page.start + 70, entries: 9000 - 1200 * rank }]
      : [];
  });
}

function layout(messages: StoredMessage[]): { spans: Span[]; total: number } {
  const spans: Span[] = [];
  let at = 0;
  const push = (tokens: number, message: number | null, kind: Span['kind']) => {
    spans.push({ start: at, end: at + tokens, message, kind });
    at += tokens;
  };
  messages.forEach((message, i) => {
    push(5, null, { type: 'template' });
    message.documents.forEach((document, d) => {
      for (let page = 1; page <= document.pages; page += 1) {
        push(Math.ceil(document.tokens / document.pages), i, { type: 'page', document: d, page });
      }
    });
    push(Math.max(4, Math.ceil(message.text.length / 4)), i, { type: 'text', role: message.role });
  });
  push(4, null, { type: 'template' });
  return { spans, total: at };
}

function layoutDone(spans: Span[], message: number, end: number): Span[] {
  const start = spans.at(-1)?.end ?? 0;
  return [...spans, { start, end, message, kind: { type: 'text', role: 'assistant' } }];
}
