import { SvelteMap } from 'svelte/reactivity';
import { KeptMap } from '../cache/kept';
import { openWishes, type PinWish } from '../cache/pins';
import type { Range } from '../cache/ranges';
import { StretchCache } from '../heatmap/pieces';
import type {
  CacheOptions,
  CacheState,
  Event,
  FinishReason,
  PrefillMode,
  Recalled,
  SnapshotWork,
  Span,
  TurnStats,
} from '../ipc/types';

/** Events of the worker that name a session. */
export type SessionEvent =
  Extract<Event, { session: string }> | (Extract<Event, { type: 'failed' }> & { session: string });

export interface Prefill {
  done: number;
  total: number;
  tokS: number;
  remainingS: number | null;
  mode: PrefillMode;
}

/** What a question brought back, and what the positions stood for then. */
export interface Recall {
  passages: Recalled[];
  spans: Span[];
}

/** The answer that this session is writing or has just written. */
export interface Answer {
  text: string;
  generated: number;
  tokS: number;
  /** Seconds from the question to the first token; `null` before it. */
  ttftS: number | null;
  finish: FinishReason | null;
  stats: TurnStats | null;
}

/** What the worker tells of one conversation while the window is open. */
export class Session {
  /** A question was sent and its answer is not complete. */
  busy = $state(false);
  stopping = $state(false);
  /** What is being done with the chat's file: a question waits for its end. */
  snapshot = $state<SnapshotWork | null>(null);
  answer = $state.raw<Answer | null>(null);
  prefill = $state.raw<Prefill | null>(null);
  cache = $state.raw<CacheState | null>(null);
  spans = $state.raw<Span[]>([]);
  /** Positions of which not even the store holds anything. */
  forgotten = $state.raw<Range[]>([]);
  pinned = $state.raw<Range[]>([]);
  /** Shown as if they were true, until the worker says that they are, or that they cannot be. */
  pinWishes = $state.raw<PinWish[]>([]);
  laidOut = $state(0);
  reused = $state(0);
  failure = $state.raw<{ code: string; message: string } | null>(null);
  /** The options in force, as the last question set them. */
  options = $state.raw<CacheOptions | null>(null);
  /** Rises when `kept` changes: the map itself is too large to be watched. */
  keptVersion = $state(0);
  readonly kept = new KeptMap();
  /** The newest picture of the layers, where one was asked for. */
  layers = $state.raw<Extract<Event, { type: 'layers' }> | null>(null);
  /** Parts of the context as text. */
  readonly stretches = new StretchCache();
  /** By the message that holds the answer. */
  readonly #recalls = new SvelteMap<number, Recall>();
  #recall: Recall | null = null;
  #answerId: number | null = null;
  #startedMs = 0;

  constructor(readonly id: string) {}

  /** The worker reads or writes for it now, which others wait for. */
  get atWork(): boolean {
    return this.busy && (this.prefill !== null || (this.answer?.generated ?? 0) > 0);
  }

  /** Tokens of the context, with those of the answer so far. */
  get total(): number {
    return Math.max(this.laidOut, this.cache?.n_seen ?? 0);
  }

  /** An answer begins; `text` is what an earlier turn wrote of it. */
  begin(options: CacheOptions, text = '', nowMs = performance.now()): void {
    this.busy = true;
    this.stopping = false;
    this.failure = null;
    this.prefill = null;
    this.options = options;
    this.#recall = null;
    this.#answerId = null;
    this.#startedMs = nowMs;
    this.answer = { text, generated: 0, tokS: 0, ttftS: null, finish: null, stats: null };
  }

  /** Takes up an answer that was begun before this window looked at it. */
  resume(text: string, generated: number): void {
    if (this.busy && (this.answer?.generated ?? 0) >= generated) return;
    this.busy = true;
    this.answer = { text, generated, tokS: 0, ttftS: null, finish: null, stats: null };
  }

  /** Names the message that the answer goes to; what was recalled for it may have come before that is known. */
  answersTo(message: number): void {
    this.#answerId = message;
    if (this.#recall) this.#recalls.set(message, this.#recall);
  }

  recallOf(message: number): Recall | undefined {
    return this.#recalls.get(message);
  }

  wishPin(wish: PinWish): void {
    this.pinWishes = [...this.pinWishes, wish];
  }

  dropPinWishes(): void {
    this.pinWishes = [];
  }

  apply(event: SessionEvent, nowMs = performance.now()): void {
    switch (event.type) {
      case 'layout':
        this.spans = event.spans;
        this.laidOut = event.n_tokens;
        this.reused = event.reused;
        this.stretches.dropFrom(event.reused);
        if (event.n_tokens < this.kept.length) {
          this.kept.truncate(event.n_tokens);
          this.keptVersion += 1;
        }
        break;
      case 'prefill':
        this.prefill = {
          done: event.done,
          total: event.total,
          tokS: event.tok_s,
          remainingS: event.remaining_s,
          mode: event.mode,
        };
        break;
      case 'token': {
        const before = this.answer;
        // Already in the text that came with the chat.
        if (before && event.generated <= before.generated) break;
        this.prefill = null;
        this.answer = {
          text: (before?.text ?? '') + event.text,
          generated: event.generated,
          tokS: event.tok_s,
          ttftS: before?.ttftS ?? (nowMs - this.#startedMs) / 1000,
          finish: null,
          stats: null,
        };
        break;
      }
      case 'cache':
        this.cache = event.state;
        for (const patch of event.kept) this.kept.apply(patch);
        this.forgotten = event.forgotten;
        this.pinned = event.pinned;
        this.pinWishes = openWishes(this.pinWishes, event.pinned);
        if (event.kept.length > 0) this.keptVersion += 1;
        break;
      case 'recalled':
        this.#recall = { passages: event.passages, spans: this.spans };
        if (this.#answerId !== null) this.#recalls.set(this.#answerId, this.#recall);
        break;
      case 'layers':
        this.layers = event;
        break;
      case 'notice':
        // It does not say which wish it is about: what is still wanted shows with the next event.
        if (event.code === 'options') this.dropPinWishes();
        break;
      case 'finished':
        this.#end();
        this.answer = {
          text: this.answer?.text ?? '',
          generated: event.stats.generated,
          tokS: event.stats.tok_s,
          ttftS: event.stats.ttft_s,
          finish: event.reason,
          stats: event.stats,
        };
        break;
      case 'failed':
        this.fail(event.code, event.message);
        break;
    }
  }

  fail(code: string, message: string): void {
    this.failure = { code, message };
    this.dropPinWishes();
    this.#end();
  }

  /** The chat shows another branch: what stands from this position on is none of its messages. */
  part(position: number): void {
    this.spans = this.spans.map((span) =>
      span.start >= position ? { ...span, message: null } : span,
    );
  }

  /** The worker holds nothing of this session any more. */
  forget(): void {
    this.snapshot = null;
    this.cache = null;
    this.spans = [];
    this.forgotten = [];
    this.pinned = [];
    this.pinWishes = [];
    this.layers = null;
    this.stretches.dropFrom(-1);
    this.laidOut = 0;
    this.reused = 0;
    this.kept.truncate(0);
    this.keptVersion += 1;
  }

  #end(): void {
    this.busy = false;
    this.stopping = false;
    this.prefill = null;
  }
}
