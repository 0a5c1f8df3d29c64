import { SvelteMap } from 'svelte/reactivity';
import { asApiError, type Api } from '../ipc/api';
import type { ApiError, FetchState, ModelEntry, ModelInfo, Status } from '../ipc/types';
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

  /** The open model was closed for want of use, and is opened again when it is needed. */
  get sleeping(): boolean {
    return this.status.state === 'sleeping';
  }

  /** The model that is open, or that the next question opens again. */
  get held(): ModelInfo | null {
    const { status } = this;
    return status.state === 'ready' || status.state === 'sleeping' ? status.model : null;
  }

  /** The download of a model that runs or can be gone on with. */
  download({ id, arrived, bytes }: ModelEntry): FetchState | null {
    const fetch = this.fetches.get(id);
    if (fetch?.phase === 'downloading' || fetch?.phase === 'checking') return fetch;
    if (fetch?.phase === 'paused' && fetch.done > 0) return fetch;
    if (arrived === null || fetch?.phase === 'done') return null;
    return { id, phase: 'paused', done: arrived, total: bytes, bytes_s: 0, error: null };
  }

  /** Why the last download of a model ended. */
  failure({ id }: ModelEntry): ApiError | null {
    return this.fetches.get(id)?.error ?? null;
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
      done: entry.arrived ?? 0,
      total: entry.bytes,
      bytes_s: 0,
      error: null,
    });
    try {
      await this.api.fetchModel(entry.id);
    } catch (thrown) {
      const error = asApiError(thrown);
      const state = this.fetches.get(entry.id);
      if (state?.phase === 'downloading' || state?.phase === 'checking') {
        this.fetches.set(entry.id, { ...state, phase: 'failed', error });
      }
    }
  }

  pause(id: string): Promise<void> {
    return this.#try(() => this.api.pauseFetch(id));
  }

  cancel(id: string): Promise<void> {
    return this.#try(() => this.api.cancelFetch(id));
  }

  /** Deletes a model's file, or takes a file of the person's own off the list. */
  async remove({ path }: ModelEntry): Promise<void> {
    if (path !== null) await this.#try(() => this.api.removeModel(path));
    await this.refresh();
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
    else if (fetch.phase === 'paused' || fetch.phase === 'cancelled') void this.#ended(fetch.id);
    // What arrived before it failed can be gone on from.
    else if (fetch.phase === 'failed') void this.refresh();
  }

  /** The list knows what is left of a download; one that was started again meanwhile has a state of its own. */
  async #ended(id: string): Promise<void> {
    await this.refresh();
    const phase = this.fetches.get(id)?.phase;
    if (phase === 'paused' || phase === 'cancelled') this.fetches.delete(id);
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
