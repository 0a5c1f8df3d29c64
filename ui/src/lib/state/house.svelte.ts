import type { Api } from '../ipc/api';
import type { ShellSettings } from '../ipc/types';
import type { Toasts } from './toasts.svelte';

/** The settings that the shell obeys, as it has them. */
export class House {
  settings = $state.raw<ShellSettings | null>(null);

  constructor(
    private readonly api: Api,
    private readonly toasts: Toasts,
  ) {}

  async refresh(): Promise<void> {
    await this.#try(async () => {
      this.settings = await this.api.shellSettings();
    });
  }

  /** What could not be stored is shown as it was. */
  async change(some: Partial<ShellSettings>): Promise<void> {
    const { settings } = this;
    if (!settings) return;
    const next = { ...settings, ...some };
    await this.#try(() => this.api.changeSettings(next));
    await this.refresh();
  }

  async #try(action: () => Promise<void>): Promise<void> {
    try {
      await action();
    } catch (error) {
      this.toasts.error(error);
    }
  }
}
