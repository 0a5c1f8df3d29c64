import type { Api } from '../ipc/api';
import type { Found } from '../ipc/types';
import type { Toasts } from './toasts.svelte';

/** Typing goes on for so long before the shell is asked. */
const PAUSE_MS = 120;

/** The search field over the list of chats. */
export class Search {
  text = $state('');
  /** `null` until there is something to show for the text. */
  found = $state.raw<Found[] | null>(null);
  /** Rises when the field is to have the focus. */
  asked = $state(0);
  #timer: ReturnType<typeof setTimeout> | undefined;
  #query = 0;

  constructor(
    private readonly api: Api,
    private readonly toasts: Toasts,
  ) {}

  get active(): boolean {
    return this.text.trim() !== '';
  }

  focus(): void {
    this.asked += 1;
  }

  type(text: string): void {
    this.text = text;
    clearTimeout(this.#timer);
    this.#query += 1;
    if (this.active) this.#timer = setTimeout(() => void this.refresh(), PAUSE_MS);
    else this.found = null;
  }

  clear(): void {
    this.type('');
  }

  /** Searches anew, where something is searched for: the chats have changed. */
  async refresh(): Promise<void> {
    if (!this.active) return;
    this.#query += 1;
    const query = this.#query;
    try {
      const found = await this.api.searchChats(this.text);
      if (query === this.#query) this.found = found;
    } catch (error) {
      this.toasts.error(error);
    }
  }
}
