import { SvelteMap } from 'svelte/reactivity';
import { Outline } from '../heatmap/sources';
import { t } from '../i18n';
import { asApiError, type Api } from '../ipc/api';
import type {
  AgainHow,
  Attachment,
  ChatSummary,
  Question,
  Sent,
  SnapshotWork,
  StoredMessage,
} from '../ipc/types';
import type { Prefs } from './prefs.svelte';
import { Session, type SessionEvent } from './session.svelte';
import type { Toasts } from './toasts.svelte';

/** For so long a deletion can be taken back at a click; the shell gives a minute. */
const UNDO_MS = 6000;

export interface OpenChat {
  summary: ChatSummary;
  messages: StoredMessage[];
}

/** How an answer is to be written. */
type Terms = Pick<Question, 'cache' | 'sampling' | 'max_tokens'>;

/** The branch that ends with a question and its answer, made from the one that was shown. */
function withAnswer(shown: StoredMessage[], { system, question, answer }: Sent): StoredMessage[] {
  const end = shown.findIndex(({ id }) => id === question.parent) + 1;
  const before = end === 0 && system ? [system] : shown.slice(0, end);
  return [...before, question, answer];
}

/** Makes what a session has read of one branch nobody's where another branch parts from it. */
function part(session: Session, before: StoredMessage[], shown: StoredMessage[]): void {
  const parted = shown.findIndex(({ id }, i) => id !== before[i]?.id);
  const outline = new Outline(session.spans, before);
  // An edited question has the documents of the other one, and they stand before its words.
  const documents = (messages: StoredMessage[]) => JSON.stringify(messages[parted]?.documents);
  const same = documents(before) === documents(shown);
  const first = session.spans.find(({ start, kind }) => {
    const message = outline.messageAt(start, session.total) ?? -1;
    return message > parted || (message === parted && (kind.type === 'text' || !same));
  });
  if (parted >= 0 && first) session.part(first.start);
}

/** The list of chats, the open one, and what the worker says about each. */
export class Chats {
  list = $state.raw<ChatSummary[]>([]);
  /** `null` is a new chat that has no question yet. */
  open = $state<OpenChat | null>(null);
  opening = $state<string | null>(null);
  sending = $state(false);
  readonly #sessions = new SvelteMap<string, Session>();
  /** Counts navigation, so that what comes late does not pull the person back. */
  #visit = 0;

  constructor(
    private readonly api: Api,
    private readonly prefs: Prefs,
    private readonly toasts: Toasts,
  ) {}

  get session(): Session | undefined {
    return this.open ? this.#sessions.get(this.open.summary.id) : undefined;
  }

  get busy(): boolean {
    return this.sending || (this.session?.busy ?? false);
  }

  isBusy(id: string): boolean {
    return this.#sessions.get(id)?.busy ?? false;
  }

  /** Another chat than the open one is being answered. */
  get otherAtWork(): boolean {
    return [...this.#sessions.values()].some((other) => other !== this.session && other.atWork);
  }

  async refresh(): Promise<void> {
    try {
      this.list = await this.api.chats();
      const open = this.list.find((chat) => chat.id === this.open?.summary.id);
      if (open && this.open) this.open.summary = open;
    } catch (error) {
      this.toasts.error(error);
    }
  }

  startNew(): void {
    this.#visit += 1;
    this.open = null;
    this.opening = null;
  }

  async select(id: string): Promise<void> {
    if (this.open?.summary.id === id) return;
    this.#visit += 1;
    const visit = this.#visit;
    this.opening = id;
    try {
      const chat = await this.api.openChat(id);
      if (visit !== this.#visit) return;
      this.open = { summary: chat.summary, messages: chat.messages };
      this.#takeUp(id, chat.messages.at(-1));
    } catch (error) {
      this.toasts.error(error);
    } finally {
      if (visit === this.#visit) this.opening = null;
    }
  }

  /** Sends a question; `false` when it was refused and should stay in the composer. */
  send(text: string, documents: Attachment[]): Promise<boolean> {
    const chat = this.open?.summary.id ?? null;
    const system = this.prefs.systemPrompt;
    return this.#ask(chat, '', (terms) =>
      this.api.send({ chat, edits: null, system, text, documents, ...terms }),
    );
  }

  /** Asks another question in place of one, in a branch beside it; `false` when it was refused. */
  edit(question: StoredMessage, text: string): Promise<boolean> {
    const chat = this.open?.summary.id ?? null;
    const system = this.prefs.systemPrompt;
    return this.#ask(chat, '', (terms) =>
      this.api.send({ chat, edits: question.id, system, text, documents: [], ...terms }),
    );
  }

  /** Has an answer written anew, in a branch beside it. */
  regenerate(answer: StoredMessage): Promise<boolean> {
    return this.#again(answer, 'anew', '');
  }

  /** Has the rest of an answer written. */
  resume(answer: StoredMessage): Promise<boolean> {
    return this.#again(answer, 'continue', answer.text);
  }

  /** Shows the branch that a message stands in. */
  async showBranch(message: number): Promise<void> {
    const visit = this.#visit;
    const chat = this.open?.summary.id;
    if (chat === undefined || this.busy) return;
    try {
      const { summary, messages } = await this.api.showBranch(chat, message);
      if (visit !== this.#visit) return;
      if (this.session && this.open) part(this.session, this.open.messages, messages);
      this.open = { summary, messages };
    } catch (error) {
      this.toasts.error(error);
    }
  }

  async stop(): Promise<void> {
    const session = this.session;
    if (!session?.busy || session.stopping) return;
    session.stopping = true;
    try {
      await this.api.stop(session.id);
    } catch (error) {
      session.stopping = false;
      this.toasts.error(error);
    }
  }

  async rename(id: string, title: string): Promise<void> {
    const clean = title.trim();
    if (clean === '') return;
    this.list = this.list.map((chat) => (chat.id === id ? { ...chat, title: clean } : chat));
    if (this.open?.summary.id === id) this.open.summary.title = clean;
    try {
      await this.api.renameChat(id, clean);
    } catch (error) {
      this.toasts.error(error);
      await this.refresh();
    }
  }

  async pin(id: string, pinned: boolean): Promise<void> {
    this.list = this.list.map((chat) => (chat.id === id ? { ...chat, pinned } : chat));
    try {
      await this.api.pinChat(id, pinned);
    } catch (error) {
      this.toasts.error(error);
      await this.refresh();
    }
  }

  /** Deletes a chat, and offers to take that back. */
  async remove(id: string): Promise<void> {
    const chat = this.list.find((c) => c.id === id);
    if (!chat) return;
    this.list = this.list.filter((c) => c.id !== id);
    if (this.open?.summary.id === id) this.startNew();
    try {
      await this.api.deleteChat(id);
    } catch (error) {
      this.toasts.error(error);
      await this.refresh();
      return;
    }
    this.#sessions.delete(id);
    const toast = this.toasts.show(
      t.chats.deleted(chat.title),
      {
        action: {
          label: t.chats.undo,
          run: () => {
            this.toasts.dismiss(toast);
            void this.#restore(id);
          },
        },
      },
      UNDO_MS,
    );
  }

  apply(event: SessionEvent): void {
    const { session: id } = event;
    const unknown = !this.#sessions.has(id) && !this.list.some((chat) => chat.id === id);
    const session = this.#session(id);
    // The first events of a new chat may come before the reply that names it.
    if (unknown && this.sending) session.begin(this.prefs.cacheOptions);
    if (event.type === 'failed' && !session.busy) {
      // Not the end of an answer: a budget that could not be had, for instance.
      this.toasts.error(event);
      return;
    }
    if (!session.busy && (event.type === 'prefill' || event.type === 'token')) {
      session.begin(session.options ?? this.prefs.cacheOptions);
    }
    if (event.type === 'notice') this.toasts.notice(event);
    session.apply(event);
    if (event.type === 'finished' || event.type === 'failed') this.#settle(session);
  }

  /** A chat's file is being read or written, or no longer. */
  applySnapshot(chat: string, work: SnapshotWork | null): void {
    this.#session(chat).snapshot = work;
  }

  /** The worker's caches are gone. Answers that this cuts off are reported one by one. */
  forgetAll(): void {
    for (const session of this.#sessions.values()) session.forget();
  }

  #again(answer: StoredMessage, how: AgainHow, text: string): Promise<boolean> {
    const chat = this.open?.summary.id;
    if (chat === undefined) return Promise.resolve(false);
    return this.#ask(chat, text, (terms) =>
      this.api.answerAgain({ chat, answer: answer.id, how, ...terms }),
    );
  }

  /** Has something written in a chat, after the `text` that is there of it; `false` when it was refused. */
  async #ask(
    chat: string | null,
    text: string,
    send: (terms: Terms) => Promise<Sent>,
  ): Promise<boolean> {
    if (this.busy) return false;
    const visit = this.#visit;
    const cache = this.prefs.cacheOptions;
    const known = chat !== null ? this.#session(chat) : undefined;
    this.sending = true;
    known?.begin(cache, text);
    try {
      const sent = await send({
        cache,
        sampling: this.prefs.nextSampling,
        max_tokens: this.prefs.sampling.max_tokens,
      });
      const id = sent.chat.id;
      if (!known && !this.#sessions.has(id)) this.#session(id).begin(cache);
      const session = this.#session(id);
      session.options = cache;
      session.answersTo(sent.answer.id);
      if (visit === this.#visit) {
        this.open = { summary: sent.chat, messages: withAnswer(this.open?.messages ?? [], sent) };
        this.#visit += chat === null ? 1 : 0;
        this.#settle(session);
      }
      return true;
    } catch (error) {
      const { code, message } = asApiError(error);
      known?.fail(code, message);
      if (known) known.failure = null;
      this.toasts.error(error);
      return false;
    } finally {
      this.sending = false;
    }
  }

  #session(id: string): Session {
    let session = this.#sessions.get(id);
    if (!session) {
      session = new Session(id);
      this.#sessions.set(id, session);
    }
    return session;
  }

  /** Joins what the shell has stored with what has been streamed since. */
  #takeUp(id: string, last: StoredMessage | undefined): void {
    if (!last?.writing) {
      const known = this.#sessions.get(id);
      if (known && !known.busy) known.answer = null;
      return;
    }
    const session = this.#session(id);
    // It may have ended while the chat was being read.
    if (!session.busy && session.answer) this.#settle(session);
    else {
      session.resume(last.text, last.generated);
      session.answersTo(last.id);
    }
  }

  /** Moves what an ended session wrote into the message it belongs to. */
  #settle(session: Session): void {
    if (session.busy || this.open?.summary.id !== session.id || !session.answer) return;
    const message = this.open.messages.at(-1);
    if (!message?.writing) return;
    const { text, finish, stats } = session.answer;
    if (text !== '') message.text = text;
    message.writing = false;
    message.finish = finish;
    message.problem = session.failure?.message ?? null;
    message.stats = stats;
    session.answer = null;
  }

  async #restore(id: string): Promise<void> {
    try {
      await this.api.restoreChat(id);
    } catch (error) {
      this.toasts.error(error);
    }
    await this.refresh();
  }
}
