import { asApiError } from '../ipc/api';
import type { ApiError } from '../ipc/types';

export interface Toast {
  id: number;
  message: string;
  /** Said in the language of the window, in place of the message. */
  error?: ApiError;
  tone: 'info' | 'error';
  action?: { label: string; run: () => void };
}

/** Short notices at the foot of the window. */
export class Toasts {
  items = $state<Toast[]>([]);
  #next = 1;

  show(message: string, options: Partial<Omit<Toast, 'id' | 'message'>> = {}, ms = 6000): number {
    const id = this.#next;
    this.#next += 1;
    this.items.push({ id, message, tone: 'info', ...options });
    if (this.items.length > 4) this.items.shift();
    setTimeout(() => this.dismiss(id), ms);
    return id;
  }

  error(thrown: unknown): void {
    const error = asApiError(thrown);
    // The same sentence twice says nothing new.
    if (this.items.some((toast) => toast.message === error.message)) return;
    this.show(error.message, { tone: 'error', error }, 10_000);
  }

  /** What happened in a running turn: a later one of its kind says all that the one before said. */
  notice(notice: ApiError): void {
    this.items = this.items.filter((toast) => toast.error?.code !== notice.code);
    this.error(notice);
  }

  dismiss(id: number): void {
    this.items = this.items.filter((toast) => toast.id !== id);
  }
}
