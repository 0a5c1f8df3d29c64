export interface Toast {
  id: number;
  message: string;
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

  error(message: string): void {
    // The same sentence twice says nothing new.
    if (this.items.some((toast) => toast.message === message)) return;
    this.show(message, { tone: 'error' }, 10_000);
  }

  dismiss(id: number): void {
    this.items = this.items.filter((toast) => toast.id !== id);
  }
}
