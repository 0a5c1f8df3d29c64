import type { CacheOptions, CacheState, Event, Span, StoredMessage } from '../../src/lib/ipc/types';

const KV_BYTES = 22_528;

/** Stands in for the worker in tests and the preview: the same events, made up but consistent. */
export class FakeWorker {
  readonly #kept = new Map<string, Uint8Array>();
  readonly #state = new Map<
    string,
    { options: CacheOptions; seen: number; budget: number; peak: number }
  >();
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
    const seen = this.#state.get(session)?.seen ?? 0;
    const state = {
      options,
      seen,
      budget: options.budget ?? 2048,
      peak: this.#state.get(session)?.peak ?? 0,
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
      });
      this.#cache(session, spans);
      await this.pause(180);
    }
    let text = '';
    let generated = 0;
    for (const piece of reply.match(/\S+\s*/g) ?? []) {
      if (this.#stopped.has(session))
        return this.#finish(session, text, total - seen, generated, 'stopped');
      text += piece;
      generated += 1;
      state.seen += 1;
      this.emit({ type: 'token', session, text: piece, generated, tok_s: 17.3 });
      if (generated % 8 === 0) this.#cache(session, spans);
      await this.pause(45);
    }
    this.emit({
      type: 'layout',
      session,
      n_tokens: state.seen,
      reused: seen,
      spans: layoutDone(spans, messages.length, state.seen),
    });
    this.#cache(session, spans);
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
    this.#cache(session, []);
  }

  #finish(
    session: string,
    text: string,
    prefilled: number,
    generated: number,
    reason: 'eos' | 'stopped' = text === '' ? 'stopped' : 'eos',
  ): string {
    const stats = { prefilled, prefill_s: 20.8, ttft_s: 21.1, generated, tok_s: 17.3 };
    this.emit({ type: 'finished', session, reason, stats });
    return text;
  }

  #cache(session: string, spans: Span[]): void {
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
    for (const span of spans) {
      if (span.kind.type === 'template') kept.fill(255, span.start, Math.min(span.end, n));
    }
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
    };
    let binary = '';
    for (const byte of kept) binary += String.fromCharCode(byte);
    this.emit({ type: 'cache', session, state: cache, kept: [{ start: 0, values: btoa(binary) }] });
  }
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
