import {
  columnsOf,
  FEWEST_COLUMNS,
  MOST_COLUMNS,
  type Preset,
  type Setup,
} from '../compare/columns';
import { comparisonMarkdown } from '../compare/markdown';
import { t } from '../i18n';
import type { Api } from '../ipc/api';
import type {
  ApiError,
  CacheOptions,
  CacheState,
  ComparedColumn,
  Comparison,
  FinishReason,
  TurnStats,
} from '../ipc/types';
import type { Attachments } from './attachments.svelte';
import type { Chats } from './chats.svelte';
import type { Models } from './models.svelte';
import type { Prefs } from './prefs.svelte';
import { Session, type Prefill, type SessionEvent } from './session.svelte';
import type { Toasts } from './toasts.svelte';

/** Sessions of comparisons are called so; chats never are. */
const PREFIX = 'compare-';

/** Long enough to see where answers part, short enough to wait for three. */
const MAX_TOKENS = 256;

export type Phase = 'waiting' | 'reading' | 'writing' | 'done' | 'stopped' | 'failed';

/** A column as it stands, being answered or long done. */
export interface ColumnResult {
  options: CacheOptions;
  phase: Phase;
  text: string;
  prefill: Prefill | null;
  /** Tokens a second while it is written. */
  tokS: number;
  cache: CacheState | null;
  stats: TurnStats | null;
  finish: FinishReason | null;
  problem: ApiError | null;
}

/** Where a comparison stands in the conversation. */
export interface Place {
  chat: string | null;
  /** The chat's last question is asked once more. */
  again: boolean;
  /** Messages that stand before it. */
  before: number;
  documents: string[];
}

/** The same question under several caches: what is to be compared, and what came of it. */
export class Compare {
  open = $state(false);
  question = $state('');
  setups = $state<Setup[]>([]);
  maxTokens = $state(MAX_TOKENS);
  /** The column that the others are held against. */
  base = $state(0);
  running = $state(false);
  stopping = $state(false);
  /** What was last asked, and of which model. */
  asked = $state.raw<{ question: string; model: string } | null>(null);
  #live = $state.raw<Session[]>([]);
  #kept = $state.raw<ColumnResult[]>([]);
  #place = $state.raw<string | null>(null);
  /** Of the comparison at hand; events of its columns may come before it is known. */
  #id: string | null = null;
  #early: SessionEvent[] = [];
  #ended: string | null = null;

  constructor(
    private readonly api: Api,
    private readonly prefs: Prefs,
    private readonly models: Models,
    private readonly chats: Chats,
    private readonly attachments: Attachments,
    private readonly toasts: Toasts,
  ) {}

  /** The last question of the open chat. */
  get lastQuestion(): string | null {
    return this.chats.open?.messages.findLast(({ role }) => role === 'user')?.text ?? null;
  }

  get place(): Place {
    const chat = this.chats.open;
    const messages = chat?.messages ?? [];
    const last = messages.findLastIndex(({ role }) => role === 'user');
    const again = last >= 0 && this.question.trim() === messages[last]?.text.trim();
    const read = messages.slice(0, again ? last + 1 : messages.length);
    const ready = this.attachments.items.filter((item) => item.phase === 'ready');
    return {
      chat: chat?.summary.id ?? null,
      again,
      before: again ? last : messages.length,
      documents: [
        ...read.flatMap((message) => message.documents.map(({ name }) => name)),
        ...ready.map((item) => item.file.name),
      ],
    };
  }

  /** Tokens that each column will read, as far as they are known. */
  get tokens(): number {
    return (this.chats.session?.total ?? 0) + this.attachments.tokens;
  }

  readonly columns = $derived<ColumnResult[]>(
    this.#live.length > 0 ? this.#live.map(result) : this.#kept,
  );

  get canRun(): boolean {
    return (
      !this.running &&
      this.question.trim() !== '' &&
      this.models.answerable &&
      this.attachments.ready
    );
  }

  /** Shows the comparison, with `draft` as the question where something was typed. */
  async show(draft = ''): Promise<void> {
    this.open = true;
    if (this.running) return;
    const chat = this.chats.open?.summary.id ?? null;
    if (draft.trim() !== '') this.question = draft.trim();
    else if (this.#place !== chat || this.question === '') this.question = this.lastQuestion ?? '';
    if (this.setups.length === 0) this.preset('everything');
    if (this.#place === chat) return;
    this.#place = chat;
    this.#live = [];
    this.#kept = [];
    this.asked = null;
    if (chat === null) return;
    try {
      const kept = await this.api.lastComparison(chat);
      if (kept && this.#place === chat && !this.running) this.#restore(kept, draft.trim() === '');
    } catch (error) {
      this.toasts.error(error);
    }
  }

  preset(preset: Preset): void {
    const { policy, budget } = this.prefs.cacheOptions;
    this.setups = columnsOf(preset, this.tokens, { policy, budget });
    this.base = 0;
  }

  add(): void {
    const last = this.setups.at(-1);
    if (!last || this.setups.length >= MOST_COLUMNS) return;
    const policy = last.policy === 'snapkv' ? 'expected' : 'snapkv';
    this.setups.push({ policy, budget: last.budget });
  }

  remove(column: number): void {
    if (this.setups.length <= FEWEST_COLUMNS) return;
    this.setups.splice(column, 1);
    if (this.base >= this.setups.length) this.base = 0;
  }

  /** Whether a column's figures are those of what is set above them. */
  matches(column: number): boolean {
    const [setup, options] = [this.setups[column], this.columns[column]?.options];
    if (!setup || !options) return true;
    const unbounded = setup.policy === 'full' && options.policy === 'full';
    return setup.policy === options.policy && (unbounded || setup.budget === options.budget);
  }

  async run(): Promise<void> {
    if (!this.canRun) return;
    const { chat, again } = this.place;
    const ready = this.attachments.items.filter((item) => item.phase === 'ready');
    const columns = this.setups.map(({ policy, budget }): CacheOptions => {
      return { ...this.prefs.cacheOptions, policy, budget };
    });
    const question = this.question.trim();
    this.running = true;
    this.stopping = false;
    this.#id = null;
    this.#early = [];
    this.#ended = null;
    this.#place = chat;
    this.#live = [];
    this.#kept = columns.map((options) => ({ ...EMPTY, options }));
    this.asked = { question, model: this.models.held?.name ?? '' };
    try {
      const { id, sessions } = await this.api.compare({
        chat,
        system: this.prefs.systemPrompt,
        again,
        text: question,
        documents: ready.map((item) => ({
          document: { name: item.file.name, pages: item.pages },
          tokens: item.tokens ?? 0,
          file: null,
        })),
        columns,
        repetition_penalty: this.prefs.sampling.repetition_penalty,
        max_tokens: this.maxTokens,
      });
      this.#id = id;
      this.#live = sessions.map((name, i) => {
        const session = new Session(name);
        session.options = columns[i] ?? null;
        return session;
      });
      for (const event of this.#early.splice(0)) this.apply(event);
      if (this.#ended === id) this.end(id);
    } catch (error) {
      this.running = false;
      this.#kept = [];
      this.toasts.error(error);
    }
  }

  async stop(): Promise<void> {
    if (!this.running || this.stopping) return;
    this.stopping = true;
    try {
      await this.api.stopComparison();
    } catch (error) {
      this.stopping = false;
      this.toasts.error(error);
    }
  }

  /** Whether an event belongs here and to no chat. */
  owns(session: string): boolean {
    return session.startsWith(PREFIX);
  }

  apply(event: SessionEvent): void {
    if (this.running && this.#id === null) {
      this.#early.push(event);
      return;
    }
    const session = this.#live.find(({ id }) => id === event.session);
    if (!session) return;
    if (!session.busy && session.answer === null && session.options) session.begin(session.options);
    session.apply(event);
  }

  /** The last column has ended and its memory is free. */
  end(id: string): void {
    if (this.#id === null) this.#ended = id;
    if (id !== this.#id) return;
    this.running = false;
    this.stopping = false;
    if (!this.open) {
      const show = { label: t.compare.show, run: () => void (this.open = true) };
      this.toasts.show(t.compare.ready, { action: show });
    }
  }

  /** What a column was answered with. */
  setup(column: number): Setup | undefined {
    const options = this.columns[column]?.options;
    return options && { policy: options.policy, budget: options.budget };
  }

  markdown(): string {
    const { question, model } = this.asked ?? { question: this.question, model: '' };
    return comparisonMarkdown(question, model, this.columns, this.base);
  }

  #restore(kept: Comparison, question: boolean): void {
    this.#kept = kept.columns.map((column) => ({
      ...column,
      phase: phaseOf(column),
      prefill: null,
      tokS: 0,
    }));
    this.setups = kept.columns.map(({ options: { policy, budget } }) => ({ policy, budget }));
    this.base = 0;
    this.asked = { question: kept.question, model: kept.model };
    if (question) this.question = kept.question;
  }
}

const EMPTY = {
  phase: 'waiting' as const,
  text: '',
  prefill: null,
  tokS: 0,
  cache: null,
  stats: null,
  finish: null,
  problem: null,
};

function phaseOf({ problem, finish }: Pick<ComparedColumn, 'problem' | 'finish'>): Phase {
  if (problem !== null) return 'failed';
  return finish === 'stopped' ? 'stopped' : 'done';
}

function result(session: Session): ColumnResult {
  const { answer, failure, options } = session;
  if (!options) throw new Error('A column has its options from the start.');
  const ended = failure !== null || (answer?.finish ?? null) !== null;
  const begun: Phase = answer?.text ? 'writing' : 'reading';
  return {
    options,
    phase: ended
      ? phaseOf({ problem: failure, finish: answer?.finish ?? null })
      : answer
        ? begun
        : 'waiting',
    text: answer?.text ?? '',
    prefill: session.prefill,
    tokS: answer?.tokS ?? 0,
    cache: session.cache,
    // A column that was left out took nothing.
    stats: answer?.stats && answer.stats.prefilled > 0 ? answer.stats : null,
    finish: answer?.finish ?? null,
    problem: failure,
  };
}
