import type { Api } from '../ipc/api';
import type { DocumentInfo } from '../ipc/types';
import type { PendingDocument } from './attachments.svelte';

/** A place in a document; `n` rises so that asking for the same one twice works. */
export interface Place {
  /** Counted from 1. */
  page: number;
  /** Positions of the context to point at. */
  positions: [number, number] | null;
  n: number;
}

/** A document that can be looked at, attached to a question or about to be. */
export type Viewed =
  { kind: 'sent'; info: DocumentInfo } | { kind: 'pending'; item: PendingDocument };

/** What there is to show of a document. */
export type Content = { kind: 'pdf'; data: Uint8Array } | { kind: 'text'; pages: string[] };

/** The document beside the thread. */
export class Preview {
  viewed = $state.raw<Viewed | null>(null);
  place = $state.raw<Place>({ page: 1, positions: null, n: 0 });
  /** Passwords that opened a document, by its key, for as long as the window is open. */
  // eslint-disable-next-line svelte/prefer-svelte-reactivity -- nothing shows them
  readonly #passwords = new Map<string, string>();

  #arrived = 0;

  constructor(private readonly api: Api) {}

  get name(): string {
    if (!this.viewed) return '';
    return this.viewed.kind === 'sent' ? this.viewed.info.name : this.viewed.item.file.name;
  }

  /** Tells one document from another. */
  get key(): string | null {
    if (!this.viewed) return null;
    return this.viewed.kind === 'sent'
      ? `sent-${this.viewed.info.id}`
      : `pending-${this.viewed.item.id}`;
  }

  show(viewed: Viewed, page = 1, positions: [number, number] | null = null): void {
    this.viewed = viewed;
    this.place = { page, positions, n: this.place.n + 1 };
  }

  /** Whether the place that was asked for is still to be brought into view; once for each time it was asked for. */
  arrive(): boolean {
    if (this.#arrived === this.place.n) return false;
    this.#arrived = this.place.n;
    return true;
  }

  /** What was about to be sent belongs to a chat now. */
  sent(documents: DocumentInfo[]): void {
    const { viewed } = this;
    if (viewed?.kind !== 'pending') return;
    const info = documents.find(({ name }) => name === viewed.item.file.name);
    if (info) this.viewed = { kind: 'sent', info };
  }

  close(): void {
    this.viewed = null;
  }

  /** Reads what is to be shown. */
  async load(viewed: Viewed): Promise<Content> {
    if (viewed.kind === 'pending') {
      const { file, pasted, pages } = viewed.item;
      if (pasted !== null || !/\.pdf$/i.test(file.name)) return { kind: 'text', pages };
      return { kind: 'pdf', data: new Uint8Array(await this.api.readFile(file.path)) };
    }
    const { id, copied } = viewed.info;
    if (!copied) return { kind: 'text', pages: await this.api.documentPages(id) };
    return { kind: 'pdf', data: new Uint8Array(await this.api.readDocument(id)) };
  }

  password(key: string): string | undefined {
    return this.#passwords.get(key);
  }

  rememberPassword(key: string, password: string): void {
    this.#passwords.set(key, password);
  }
}
