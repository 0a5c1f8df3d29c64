import type { StoredMessage } from '../../src/lib/ipc/types';

/** The messages of a chat, in all of its branches. */
export class Tree {
  readonly #nodes: StoredMessage[] = [];
  #leaf: number | null = null;

  /** A conversation without branches. */
  constructor(messages: StoredMessage[]) {
    for (const message of messages) this.add(message, this.#leaf);
  }

  add(message: StoredMessage, parent: number | null): void {
    message.parent = parent;
    this.#nodes.push(message);
    this.#leaf = message.id;
  }

  find(id: number): StoredMessage | undefined {
    return this.#nodes.find((message) => message.id === id);
  }

  all(): StoredMessage[] {
    return this.#nodes;
  }

  get leaf(): number | null {
    return this.#leaf;
  }

  /** Shows the branch of a message, up to its newest one. */
  show(id: number): void {
    this.#leaf = id;
    for (const message of this.#nodes) if (message.parent === this.#leaf) this.#leaf = message.id;
  }

  /** The branch that is shown. */
  path(): StoredMessage[] {
    const path: StoredMessage[] = [];
    for (let at = this.#leaf; at !== null;) {
      const message = this.find(at);
      if (!message) break;
      path.unshift(message);
      at = message.parent;
    }
    for (const message of path) {
      const siblings = this.#nodes.filter(({ parent }) => parent === message.parent);
      message.siblings = siblings.map(({ id }) => id);
    }
    return path;
  }
}
