import { SvelteMap } from 'svelte/reactivity';
import { asApiError, type Api } from '../ipc/api';
import type { FetchState, ModelEntry, ModelInfo, Status } from '../ipc/types';
import type { Toasts } from './toasts.svelte';

/** Models, downloads, and what the worker process is doing. */
export class Models {
  entries = $state.raw<ModelEntry[]>([]);
  /** The list has been read once. */
  known = $state(false);
  status = $state.raw<Status>({ state: 'starting' });
  readonly fetches = new SvelteMap<string, FetchState>();

  constructor(
    private readonly api: Api,
    private readonly toasts: Toasts,
  ) {}

  get current(): ModelInfo | null {
    return this.status.state === 'ready' ? this.status.model : null;
  }

  /** A question can be asked: a model is open, or will be. */
  get answerable(): boolean {
    return this.status.state !== 'idle' && this.status.state !== 'failed';
  }

  async refresh(): Promise<void> {
    await this.#try(async () => {
      this.entries = await this.api.models();
      this.known = true;
    });
  }

  load(path: string): Promise<void> {
    return this.#try(() => this.api.loadModel(path));
  }

  eject(): Promise<void> {
    return this.#try(() => this.api.ejectModel());
  }

  async fetch(entry: ModelEntry): Promise<void> {
    this.fetches.set(entry.id, {
      id: entry.id,
      phase: 'downloading',
      done: 0,
      total: entry.bytes,
      bytes_s: 0,
      message: null,
    });
    try {
      await this.api.fetchModel(entry.id);
    } catch (error) {
      const { message } = asApiError(error);
      const state = this.fetches.get(entry.id);
      if (state?.phase === 'downloading' || state?.phase === 'checking') {
        this.fetches.set(entry.id, { ...state, phase: 'failed', message });
      }
    }
  }

  cancel(id: string): Promise<void> {
    return this.#try(() => this.api.cancelFetch(id));
  }

  /** Opens a GGUF file from the file dialog. */
  async pick(): Promise<void> {
    await this.#try(async () => {
      const file = (await this.api.pickFiles()).find((f) => /\.gguf$/i.test(f.name));
      if (file) await this.api.loadModel(file.path);
    });
  }

  applyFetch(fetch: FetchState): void {
    this.fetches.set(fetch.id, fetch);
    if (fetch.phase === 'done') void this.#fetched(fetch.id);
  }

  /** A model that was waited for is opened, unless another one is at work. */
  async #fetched(id: string): Promise<void> {
    await this.refresh();
    this.fetches.delete(id);
    const path = this.entries.find((entry) => entry.id === id)?.path;
    if (path && !this.answerable) await this.load(path);
  }

  async #try(action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      this.toasts.error(error);
    }
  }
}
