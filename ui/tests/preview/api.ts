import type { Api, DragEvent } from '../../src/lib/ipc/api';
import type {
  AppEvent,
  CacheOptions,
  Chat,
  ChatSummary,
  ExportFormat,
  Found,
  Comparison,
  CompareRequest,
  ModelEntry,
  ModelInfo,
  Pieces,
  ShellSettings,
  StoredMessage,
} from '../../src/lib/ipc/types';
import { Tree } from './tree';
import { FakeWorker } from './worker';

export const REPLY = `The guide describes **three ways to change the budget**:

1. Move the slider while an answer is written; eviction happens at once.
2. Turn on *auto*, which follows the free memory of the device.
3. Give \`--budget\` on the command line.

| policy | keeps | memory at 8K |
| --- | --- | ---: |
| full | everything | 176 MiB |
| h2o | recent and heavy hitters | 22 MiB |

\`\`\`sh
cistern ask --doc guide.pdf --budget 1024 --ask "What does the slider do?"
\`\`\`

See the [project page](https://example.org/cistern) for how entries are chosen.`;

export const MODEL: ModelInfo = {
  name: 'SmolLM2-135M-Instruct',
  path: '/home/me/models/SmolLM2-135M-Instruct.Q4_1.gguf',
  architecture: 'llama',
  quantization: 'Q4_1',
  parameters: 134_515_008,
  weight_bytes: 98_000_000,
  context: 8192,
  layers: 30,
  kv_heads: 3,
  kv_bytes_per_token: 22_528,
  device: { kind: 'cpu', name: 'CPU, 8 threads' },
};

const CATALOGUE: ModelEntry[] = [
  {
    id: 'smollm2-135m',
    name: 'SmolLM2 135M Instruct',
    summary: 'The starter: answers at once on any machine, knows little.',
    bytes: 98_000_000,
    context: 8192,
    licence: 'Apache-2.0',
    path: MODEL.path,
    arrived: null,
    memory: { fixed: 160_000_000, per_token: 24_840 },
    removal: null,
  },
  {
    id: 'qwen3-4b',
    name: 'Qwen3 4B',
    summary: 'A good all-rounder for long documents on a gaming card.',
    bytes: 2_497_280_256,
    context: 40_960,
    licence: 'Apache-2.0',
    path: null,
    arrived: null,
    memory: { fixed: 2_700_000_000, per_token: 153_216 },
    removal: null,
  },
  {
    id: 'llama-3.1-8b',
    name: 'Llama 3.1 8B Instruct',
    summary: 'Strong general answers and a context of 128K tokens.',
    bytes: 4_920_739_232,
    context: 131_072,
    licence: 'Llama 3.1 Community',
    path: null,
    arrived: null,
    memory: { fixed: 8_900_000_000, per_token: 136_192 },
    removal: null,
  },
];

export function message(
  id: number,
  role: StoredMessage['role'],
  text: string,
  rest: Partial<StoredMessage> = {},
): StoredMessage {
  return {
    id,
    parent: null,
    siblings: [id],
    role,
    text,
    documents: [],
    writing: false,
    generated: 0,
    finish: null,
    problem: null,
    stats: null,
    ...rest,
  };
}

/** What a column took that was left out. */
const NOTHING = {
  prefilled: 0,
  prefill_s: 0,
  recall_s: 0,
  looked_again: 0,
  ttft_s: 0,
  generated: 0,
  tok_s: 0,
};

/** A small budget loses what the answer needs. */
function replyUnder({ policy, budget }: CacheOptions): string {
  const reply = REPLY.slice(0, REPLY.indexOf('\n\n|'));
  if (policy === 'full' || (budget ?? Infinity) > 1000) return reply;
  return reply
    .replace('**three ways', '**two ways')
    .replace(/3\. Give .*\n/, '')
    .replace('eviction happens at once', 'it takes effect with the next question');
}

export interface PreviewOptions {
  /** The state of the worker when the window opens. */
  model?: ModelInfo | null;
  /** Milliseconds that each step takes, as a factor; 0 is as fast as it goes. */
  pace?: number;
  /** Files by path. */
  files?: Map<string, ArrayBuffer>;
  chats?: Chat[];
}

interface Kept {
  summary: ChatSummary;
  tree: Tree;
  /** Deleted, but not for good. */
  gone?: boolean;
}

/** An `Api` without a shell, for the preview and for tests. */
export class PreviewApi implements Api {
  readonly calls: [name: string, ...args: unknown[]][] = [];
  picked: string[] = [];
  /** Questions are taken but not answered. */
  hold = false;
  entries = structuredClone(CATALOGUE);
  settings: ShellSettings = { offline: false, idle_minutes: null };
  /** Why a column of a comparison cannot be answered. */
  refuse: ((options: CacheOptions) => string | undefined) | null = null;
  /** The last comparisons, by chat. */
  readonly comparisons = new Map<string, Comparison>();
  #comparing = false;
  #comparedNow = '';
  #emit: (events: AppEvent[]) => void = () => undefined;
  #drag: (event: DragEvent) => void = () => undefined;
  #model: ModelInfo | null;
  readonly #chats: Map<string, Kept>;
  readonly #files: Map<string, ArrayBuffer>;
  readonly #worker: FakeWorker;
  readonly #pages = new Map<number, string[]>();
  readonly #copies = new Map<number, ArrayBuffer>();
  #ids = 100;
  #snapshotLimit = 8 * 2 ** 30;

  constructor({ model = MODEL, pace = 1, files = new Map(), chats = [] }: PreviewOptions = {}) {
    this.#model = model;
    this.#files = files;
    this.#chats = new Map(
      chats.map(({ summary, messages }) => [summary.id, { summary, tree: new Tree(messages) }]),
    );
    const pause = (ms: number) =>
      pace === 0 ? Promise.resolve() : new Promise<void>((done) => setTimeout(done, ms * pace));
    this.#worker = new FakeWorker((event) => this.emit({ type: 'worker', event }), pause);
  }

  chatIds(): string[] {
    return [...this.#chats.keys()];
  }

  emit(...events: AppEvent[]): void {
    this.#emit(events);
  }

  drag(event: DragEvent): void {
    this.#drag(event);
  }

  subscribe(onEvents: (events: AppEvent[]) => void): Promise<void> {
    this.#emit = onEvents;
    this.#status();
    return Promise.resolve();
  }

  onDrag(onDrag: (event: DragEvent) => void): Promise<() => void> {
    this.#drag = onDrag;
    return Promise.resolve(() => undefined);
  }

  openDataFolder() {
    this.calls.push(['openDataFolder', null]);
    return Promise.resolve();
  }

  appInfo() {
    return Promise.resolve({
      version: '0.1.0',
      data_folder: '/home/me/.local/share/cistern',
      worker_log: '',
    });
  }

  models(): Promise<ModelEntry[]> {
    return Promise.resolve(structuredClone(this.entries));
  }

  loadModel(path: string): Promise<void> {
    this.calls.push(['loadModel', path]);
    this.#model = { ...MODEL, path };
    this.#status();
    return Promise.resolve();
  }

  ejectModel(): Promise<void> {
    this.#model = null;
    this.#status();
    return Promise.resolve();
  }

  fetchModel(id: string): Promise<void> {
    const total = 2_497_280_256;
    const fetch = {
      id,
      phase: 'downloading' as const,
      done: total * 0.37,
      total,
      bytes_s: 11_200_000,
      error: null,
    };
    this.emit({ type: 'fetch', fetch });
    return Promise.resolve();
  }

  pauseFetch(id: string): Promise<void> {
    const done = 2_497_280_256 * 0.37;
    this.#arrived(id, done);
    this.emit({
      type: 'fetch',
      fetch: { id, phase: 'paused', done, total: null, bytes_s: 0, error: null },
    });
    return Promise.resolve();
  }

  cancelFetch(id: string): Promise<void> {
    this.#arrived(id, null);
    this.emit({
      type: 'fetch',
      fetch: { id, phase: 'cancelled', done: 0, total: null, bytes_s: 0, error: null },
    });
    return Promise.resolve();
  }

  removeModel(path: string): Promise<void> {
    this.calls.push(['removeModel', path]);
    this.entries = this.entries.filter((entry) => entry.path !== path);
    return Promise.resolve();
  }

  shellSettings(): Promise<ShellSettings> {
    return Promise.resolve(this.settings);
  }

  changeSettings(settings: ShellSettings): Promise<void> {
    this.calls.push(['changeSettings', settings]);
    this.settings = settings;
    return Promise.resolve();
  }

  countTokens(texts: string[]): Promise<number[]> {
    return Promise.resolve(texts.map((text) => Math.ceil(text.length / 3.6)));
  }

  chats() {
    return Promise.resolve(
      [...this.#chats.values()].filter(({ gone }) => !gone).map((chat) => chat.summary),
    );
  }

  openChat(id: string): Promise<Chat> {
    const chat = this.#chats.get(id);
    if (!chat) return Promise.reject(new Error('There is no such chat.'));
    return Promise.resolve(structuredClone({ summary: chat.summary, messages: chat.tree.path() }));
  }

  renameChat(id: string, title: string): Promise<void> {
    this.calls.push(['renameChat', id, title]);
    const chat = this.#chats.get(id);
    if (chat) chat.summary.title = title;
    return Promise.resolve();
  }

  pinChat(id: string, pinned: boolean): Promise<void> {
    this.calls.push(['pinChat', id, pinned]);
    const chat = this.#chats.get(id);
    if (chat) chat.summary.pinned = pinned;
    return Promise.resolve();
  }

  deleteChat(id: string): Promise<void> {
    this.calls.push(['deleteChat', id]);
    const chat = this.#chats.get(id);
    if (chat) chat.gone = true;
    return Promise.resolve();
  }

  restoreChat(id: string): Promise<void> {
    this.calls.push(['restoreChat', id]);
    const chat = this.#chats.get(id);
    if (chat) chat.gone = false;
    return Promise.resolve();
  }

  searchChats(words: string): Promise<Found[]> {
    const word = words.trim();
    const parts = (text: string) =>
      text
        .split(new RegExp(`(${word.replace(/[^\w\s]/g, '\\$&')})`, 'i'))
        .filter((part) => part !== '')
        .map((part) => ({ text: part, hit: part.toLowerCase() === word.toLowerCase() }));
    const has = (text: string) => text.toLowerCase().includes(word.toLowerCase());
    const found = [...this.#chats.values()].flatMap(({ summary, tree, gone }): Found[] => {
      const hits = tree.all().filter(({ text }) => has(text));
      if (gone || (hits.length === 0 && !has(summary.title))) return [];
      const messages = hits.slice(0, 3).map(({ id, role, text }) => {
        const at = Math.max(0, text.toLowerCase().indexOf(word.toLowerCase()) - 24);
        return { id, role, snippet: parts(text.slice(at, at + 120)) };
      });
      const more = Math.max(0, hits.length - 3);
      return [{ chat: summary, title: parts(summary.title), messages, more }];
    });
    return Promise.resolve(structuredClone(found));
  }

  exportChat(id: string, format: ExportFormat): Promise<string | null> {
    this.calls.push(['exportChat', id, format]);
    return Promise.resolve(`/home/me/chat.${format === 'json' ? 'json' : 'md'}`);
  }

  importChat(path: string | null): Promise<ChatSummary | null> {
    this.calls.push(['importChat', path]);
    const id = `chat-${this.#id()}`;
    const summary = { id, title: 'Imported', updated_ms: Date.now(), pinned: false };
    const tree = new Tree([message(this.#id(), 'user', 'Imported question')]);
    this.#chats.set(id, { summary, tree });
    return Promise.resolve(summary);
  }

  send(question: Parameters<Api['send']>[0]): ReturnType<Api['send']> {
    this.calls.push(['send', question]);
    const id = question.chat ?? `chat-${this.#id()}`;
    let chat = this.#chats.get(id);
    if (!chat) {
      const title = question.text.slice(0, 48);
      const summary = { id, title, updated_ms: Date.now(), pinned: false };
      chat = { summary, tree: new Tree([]) };
      this.#chats.set(id, chat);
      if (question.system.trim() !== '')
        chat.tree.add(message(this.#id(), 'system', question.system.trim()), null);
    }
    const edited = question.edits === null ? undefined : chat.tree.find(question.edits);
    const asked = message(this.#id(), 'user', question.text, {
      documents:
        edited?.documents ??
        question.documents.map(({ document, tokens, file }) => {
          const id = this.#id();
          this.#pages.set(id, document.pages);
          const copy = file !== null && /\.pdf$/i.test(file) ? this.#files.get(file) : undefined;
          if (copy) this.#copies.set(id, copy);
          return {
            id,
            name: document.name,
            pages: document.pages.length,
            tokens,
            copied: copy !== undefined,
          };
        }),
    });
    chat.tree.add(asked, edited ? edited.parent : chat.tree.leaf);
    return this.#answer(chat, asked, question.cache);
  }

  answerAgain(again: Parameters<Api['answerAgain']>[0]): ReturnType<Api['send']> {
    this.calls.push(['answerAgain', again]);
    const chat = this.#chats.get(again.chat);
    const answer = chat?.tree.find(again.answer);
    const asked = chat?.tree.find(answer?.parent ?? -1);
    if (!chat || !answer || !asked) return Promise.reject(new Error('There is no such message.'));
    return this.#answer(chat, asked, again.cache, again.how === 'continue' ? answer : undefined);
  }

  showBranch(id: string, message: number): Promise<Chat> {
    this.calls.push(['showBranch', id, message]);
    this.#chats.get(id)?.tree.show(message);
    return this.openChat(id);
  }

  #answer(
    { summary, tree }: Kept,
    question: StoredMessage,
    cache: CacheOptions,
    begun?: StoredMessage,
  ): ReturnType<Api['send']> {
    const answer = begun ?? message(this.#id(), 'assistant', '');
    if (!begun) tree.add(answer, question.id);
    const path = tree.path();
    const soFar = structuredClone(path.slice(0, -1));
    answer.writing = true;
    answer.finish = null;
    const first = path.at(-3);
    const system = first?.role === 'system' ? first : null;
    const sent = structuredClone({ chat: summary, system, question, answer });
    if (!this.hold)
      void this.#worker.answer(summary.id, soFar, cache, REPLY).then((text) => {
        answer.text += text;
        answer.finish = 'eos';
        answer.writing = false;
      });
    this.emit({ type: 'chats_changed' });
    return Promise.resolve(sent);
  }

  stop(chat: string): Promise<void> {
    this.calls.push(['stop', chat]);
    this.#worker.stop(chat);
    return Promise.resolve();
  }

  compare(request: CompareRequest) {
    this.calls.push(['compare', request]);
    const id = `c${this.#id()}`;
    const sessions = request.columns.map((_, i) => `compare-${id}-${i}`);
    const stored = request.chat === null ? [] : (this.#chats.get(request.chat)?.tree.path() ?? []);
    const documents = request.documents.map(({ document, tokens }) => ({
      name: document.name,
      pages: document.pages.length,
      tokens,
      id: this.#id(),
      copied: false,
    }));
    const asked = message(this.#id(), 'user', request.text, { documents });
    const messages = request.again ? stored.slice(0, -1) : [...stored, asked];
    this.#comparing = true;
    void (async () => {
      for (const [i, options] of request.columns.entries()) {
        const session = sessions[i] ?? '';
        const problem = this.#comparing ? this.refuse?.(options) : undefined;
        if (!this.#comparing) {
          const reason = 'stopped' as const;
          const event = { type: 'finished' as const, session, reason, stats: NOTHING };
          this.emit({ type: 'worker', event });
        } else if (problem) {
          const event = {
            type: 'failed' as const,
            session,
            code: 'context_full',
            message: problem,
          };
          this.emit({ type: 'worker', event });
        } else {
          this.#comparedNow = session;
          await this.#worker.answer(session, messages, options, replyUnder(options));
        }
      }
      this.emit({ type: 'compare_ended', id });
    })();
    return Promise.resolve({ id, sessions });
  }

  stopComparison(): Promise<void> {
    this.calls.push(['stopComparison']);
    this.#comparing = false;
    this.#worker.stop(this.#comparedNow);
    return Promise.resolve();
  }

  lastComparison(chat: string): Promise<Comparison | null> {
    return Promise.resolve(this.comparisons.get(chat) ?? null);
  }

  setBudget(chat: string, budget: number | null): Promise<void> {
    this.calls.push(['setBudget', chat, budget]);
    this.#worker.setBudget(chat, budget);
    return Promise.resolve();
  }

  pin(...[chat, passage, pinned]: Parameters<Api['pin']>): Promise<void> {
    this.calls.push(['pin', chat, passage, pinned]);
    this.#worker.pin(chat, passage, pinned);
    return Promise.resolve();
  }

  textAt(_chat: string, start: number, end: number): Promise<string> {
    return Promise.resolve(
      `the slider sets how many entries each layer and head may hold; what stands at ${start} to ${end} is what the model reads when it answers, unless it was evicted before`,
    );
  }

  /** The samples' words are made up; those of a document sent here are its own. */
  pieces(chat: string, start: number, end: number): Promise<Pieces> {
    return Promise.resolve(this.#worker.pieces(chat, start, end, (id) => this.#pages.get(id)));
  }

  showLayers(chat: string, bins: number): Promise<void> {
    this.calls.push(['showLayers', chat, bins]);
    this.#worker.showLayers(chat, bins);
    return Promise.resolve();
  }

  pickFiles() {
    return Promise.all(this.picked.map((path) => this.statFile(path)));
  }

  statFile(path: string) {
    return Promise.resolve({
      path,
      name: path.split('/').at(-1) ?? path,
      bytes: this.#files.get(path)?.byteLength ?? 0,
    });
  }

  readFile(path: string): Promise<ArrayBuffer> {
    const data = this.#files.get(path);
    return data
      ? Promise.resolve(data.slice(0))
      : Promise.reject(new Error(`There is no file ${path}.`));
  }

  snapshotUse() {
    return Promise.resolve({ chats: 3, bytes: 412 * 2 ** 20, limit: this.#snapshotLimit });
  }

  setSnapshotLimit(bytes: number) {
    this.calls.push(['setSnapshotLimit', bytes]);
    this.#snapshotLimit = bytes;
    return this.snapshotUse();
  }

  readDocument(id: number): Promise<ArrayBuffer> {
    const data = this.#copies.get(id);
    return data
      ? Promise.resolve(data.slice(0))
      : Promise.reject(new Error('There is no copy of this document.'));
  }

  documentPages(id: number): Promise<string[]> {
    return Promise.resolve(this.#pages.get(id) ?? ['This document has no text here.']);
  }

  openLink(url: string): Promise<void> {
    this.calls.push(['openLink', url]);
    return Promise.resolve();
  }

  #arrived(id: string, arrived: number | null): void {
    this.entries = this.entries.map((entry) => (entry.id === id ? { ...entry, arrived } : entry));
  }

  #id(): number {
    this.#ids += 1;
    return this.#ids;
  }

  #status(): void {
    const GiB = 2 ** 30;
    this.emit(
      {
        type: 'status',
        status: this.#model ? { state: 'ready', model: this.#model } : { state: 'idle' },
      },
      {
        type: 'gauge',
        gauge: {
          kind: 'ram',
          name: 'System memory',
          total: 15.5 * GiB,
          used: 6.2 * GiB,
          weights: this.#model ? 0.4 * GiB : 0,
          kv_hot: this.#model ? 0.3 * GiB : 0,
          kv_store: this.#model ? 0.5 * GiB : 0,
          scratch: 0.2 * GiB,
          other: 4.8 * GiB,
          room: 9.9 * GiB,
        },
      },
    );
  }
}
