import { getContext, setContext } from 'svelte';
import { throttle } from '../cache/budget';
import type { Range } from '../cache/ranges';
import { t } from '../i18n';
import type { Api } from '../ipc/api';
import type { AppEvent, ChatSummary, ExportFormat, Gauge, PickedFile } from '../ipc/types';
import type { Stretch } from '../heatmap/pieces';
import { Outline } from '../heatmap/sources';
import type { Engine } from '../pdf/extract';
import { Attachments } from './attachments.svelte';
import { Chats } from './chats.svelte';
import { Compare } from './compare.svelte';
import { House } from './house.svelte';
import { Models } from './models.svelte';
import { Passages } from './passages';
import { Prefs } from './prefs.svelte';
import { Preview } from './preview.svelte';
import { Search } from './search.svelte';
import type { Session, SessionEvent } from './session.svelte';
import { Toasts } from './toasts.svelte';

/** Often enough to look immediate, rare enough not to queue up in the worker. */
const BUDGET_EVERY_MS = 80;

/** Everything the window knows, and the one place where events come in. */
export class App {
  readonly toasts = new Toasts();
  readonly prefs: Prefs;
  readonly models: Models;
  readonly house: House;
  readonly chats: Chats;
  readonly attachments: Attachments;
  readonly search: Search;
  readonly preview: Preview;
  readonly passages = new Passages();
  readonly compare: Compare;
  gauge = $state.raw<Gauge | null>(null);
  version = $state('');
  dataFolder = $state('');
  /** Files are being dragged over the window. */
  dragging = $state(false);
  settingsOpen = $state(false);
  shortcutsOpen = $state(false);
  /** Keys are for the dialog then, not for what lies under it. */
  readonly dialogOpen = $derived.by(
    () => this.settingsOpen || this.shortcutsOpen || this.compare.open,
  );
  modelsOpen = $state(false);
  /** Index of the message that the heatmap asked for; `n` rises so that asking twice works. */
  reveal = $state.raw<{ message: number; n: number } | null>(null);

  /** Position that the heatmap is to show, once; asked for by something outside of it. */
  pointAt = $state.raw<{ position: number } | null>(null);

  readonly #sendBudget: (budget: { chat: string; budget: number | null }) => void;

  constructor(
    readonly api: Api,
    storage: Pick<Storage, 'getItem' | 'setItem'>,
    readonly loadEngine: () => Promise<Engine>,
  ) {
    this.prefs = new Prefs(storage);
    this.models = new Models(api, this.toasts);
    this.house = new House(api, this.toasts);
    this.chats = new Chats(api, this.prefs, this.toasts);
    this.attachments = new Attachments(api, loadEngine, () => this.models.held !== null);
    this.search = new Search(api, this.toasts);
    this.preview = new Preview(api);
    this.compare = new Compare(
      api,
      this.prefs,
      this.models,
      this.chats,
      this.attachments,
      this.toasts,
    );
    this.#sendBudget = throttle(BUDGET_EVERY_MS, ({ chat, budget }) => {
      api.setBudget(chat, budget).catch((error: unknown) => this.#report(error));
    });
  }

  async start(): Promise<void> {
    try {
      await this.api.subscribe((events) => events.forEach((event) => this.apply(event)));
      await this.api.onDrag((event) => {
        this.dragging = event.type === 'over';
        if (event.type === 'drop') void this.attachPaths(event.paths);
      });
      const info = await this.api.appInfo();
      this.version = info.version;
      this.dataFolder = info.data_folder;
    } catch (error) {
      this.#report(error);
    }
    await Promise.all([this.models.refresh(), this.chats.refresh(), this.house.refresh()]);
  }

  apply(event: AppEvent): void {
    switch (event.type) {
      case 'worker': {
        const inner = event.event;
        if ('session' in inner && inner.session !== null) {
          const of = this.compare.owns(inner.session) ? this.compare : this.chats;
          of.apply(inner as SessionEvent);
        } else if (inner.type === 'failed') {
          this.toasts.error(inner);
        }
        break;
      }
      case 'status':
        this.#applyStatus(event.status);
        break;
      case 'gauge':
        this.gauge = event.gauge;
        break;
      case 'fetch':
        this.models.applyFetch(event.fetch);
        break;
      case 'snapshot':
        this.chats.applySnapshot(event.chat, event.work);
        break;
      case 'compare_ended':
        this.compare.end(event.id);
        break;
      case 'chats_changed':
        void this.chats.refresh();
        void this.search.refresh();
        break;
      case 'opened':
        void this.attachPaths(event.paths);
        break;
    }
  }

  async pickDocuments(): Promise<void> {
    try {
      this.#take(await this.api.pickFiles());
    } catch (error) {
      this.#report(error);
    }
  }

  async attachPaths(paths: string[]): Promise<void> {
    for (const path of paths) {
      try {
        this.#take([await this.api.statFile(path)]);
      } catch (error) {
        this.#report(error);
      }
    }
  }

  setBudget(budget: number | null): void {
    this.prefs.budget = budget;
    this.prefs.save();
    const session = this.chats.session;
    if (session && (session.cache || session.busy)) this.#sendBudget({ chat: session.id, budget });
  }

  /** Keeps passages of the open chat from eviction, or no longer. */
  async pin(ranges: Range[], pinned: boolean): Promise<void> {
    const session = this.chats.session;
    if (!session) return;
    try {
      await Promise.all(
        ranges.map((range) => {
          session.wishPin({ range, pinned });
          const [start, end] = range;
          return this.api.pin(session.id, { type: 'range', start, end }, pinned);
        }),
      );
    } catch (error) {
      session.dropPinWishes();
      this.#report(error);
    }
  }

  /** Shows where a position stands on the heatmap. */
  showPosition(position: number): void {
    this.prefs.inspector = true;
    this.pointAt = { position };
  }

  /** Shows a passage where it can be read: in its document's preview or in the thread. */
  showPassage([start, end]: Range, spans = this.chats.session?.spans ?? []): void {
    const outline = new Outline(spans, this.chats.open?.messages ?? []);
    const span = outline.spanAt(start);
    const info = span && outline.documentOf(span);
    if (span?.kind.type === 'page' && info) {
      this.preview.show({ kind: 'sent', info }, span.kind.page, [start, end]);
      return;
    }
    const message = outline.messageAt(start, this.chats.session?.total ?? 0);
    if (message !== null) this.revealMessage(message);
  }

  /** Some positions of a conversation as text. */
  stretch({ id, stretches }: Session, start: number, end: number): Promise<Stretch> {
    return stretches.get(start, end, () => this.api.pieces(id, start, end));
  }

  revealMessage(message: number): void {
    this.reveal = { message, n: (this.reveal?.n ?? 0) + 1 };
  }

  /** Puts the cursor into the search field. */
  startSearch(): void {
    this.prefs.sidebar = true;
    this.search.focus();
  }

  /** Opens a chat that was found, at a message. */
  async openFound(chat: string, message?: number): Promise<void> {
    await this.chats.select(chat);
    if (message === undefined) return;
    const place = () => this.chats.open?.messages.findIndex(({ id }) => id === message) ?? -1;
    // It may stand in a branch that is not shown.
    if (place() < 0) await this.chats.showBranch(message);
    if (this.chats.open?.summary.id === chat && place() >= 0) this.revealMessage(place());
  }

  async exportChat(chat: ChatSummary, format: ExportFormat): Promise<void> {
    try {
      const path = await this.api.exportChat(chat.id, format);
      if (path !== null) this.toasts.show(t.chats.exported(path));
    } catch (error) {
      this.#report(error);
    }
  }

  /** Takes in a chat from a file; asks for it where none was dropped. */
  async importChat(path: string | null = null): Promise<void> {
    try {
      const chat = await this.api.importChat(path);
      if (chat === null) return;
      await this.chats.refresh();
      await this.chats.select(chat.id);
    } catch (error) {
      this.#report(error);
    }
  }

  async openDataFolder(): Promise<void> {
    try {
      await this.api.openDataFolder();
    } catch (error) {
      this.#report(error);
    }
  }

  async openLink(url: string): Promise<void> {
    try {
      await this.api.openLink(url);
    } catch (error) {
      this.#report(error);
    }
  }

  #take(files: PickedFile[]): void {
    for (const file of files) {
      if (/\.gguf$/i.test(file.name)) void this.models.load(file.path);
      else if (/\.json$/i.test(file.name)) void this.importChat(file.path);
      else this.attachments.add(file);
    }
  }

  #applyStatus(status: App['models']['status']): void {
    const before = this.models.current?.path;
    this.models.status = status;
    if (status.state !== 'ready' && status.state !== 'starting') this.chats.forgetAll();
    if (status.state === 'ready' && status.model.path !== before) this.attachments.recount();
    if (['ready', 'idle', 'failed'].includes(status.state)) void this.models.refresh();
  }

  #report(error: unknown): void {
    this.toasts.error(error);
  }
}

const KEY = Symbol('app');
export const provideApp = (app: App): App => setContext(KEY, app);
export const useApp = (): App => getContext<App>(KEY);
