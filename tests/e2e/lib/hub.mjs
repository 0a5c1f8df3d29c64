// A model hub on the loopback interface: as much of the Hugging Face Hub's protocol as a download needs.

import { once } from 'node:events';
import fs from 'node:fs';
import http from 'node:http';

const CHUNK = 1 << 18;

export class Hub {
  /** Requests for files, with their ranges, in order. */
  requests = [];
  /** Bytes a second. */
  rate = Number.POSITIVE_INFINITY;
  #server;
  #files;

  /** Serves `files`: by name, the path of a file, or a number of bytes that are made up. */
  static async start(files) {
    const hub = new Hub();
    hub.#files = files;
    hub.#server = http.createServer((request, response) => {
      // Whoever pauses a download hangs up.
      hub.#answer(request, response).catch(() => response.destroy());
    });
    hub.#server.listen(0, '127.0.0.1');
    await once(hub.#server, 'listening');
    return hub;
  }

  get endpoint() {
    return `http://127.0.0.1:${this.#server.address().port}`;
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request, response) {
    if (request.url.includes('/paths-info/')) {
      const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
      const info = body.paths.map((path) => {
        return { type: 'file', oid: '0', size: this.#size(path), path };
      });
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(info));
      return;
    }
    const name = decodeURIComponent(request.url.split('/').at(-1).split('?')[0]);
    const size = this.#size(name);
    const start = Number(/^bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0);
    response.writeHead(request.headers.range ? 206 : 200, {
      etag: '"e"',
      'x-repo-commit': 'c',
      'content-length': size - start,
    });
    if (request.method === 'HEAD') {
      response.end();
      return;
    }
    this.requests.push({ name, start });
    await this.#send(response, this.#files[name], start, size);
    response.end();
  }

  async #send(response, source, start, size) {
    const file = typeof source === 'string' ? fs.openSync(source) : undefined;
    try {
      for (let at = start; at < size && !response.destroyed; at += CHUNK) {
        const bytes = Buffer.alloc(Math.min(CHUNK, size - at));
        if (file !== undefined) fs.readSync(file, bytes, 0, bytes.length, at);
        // Called back with an error where the other side has gone.
        await new Promise((done) => response.write(bytes, done));
        const wait = (1000 * bytes.length) / this.rate;
        if (wait > 0) await new Promise((done) => setTimeout(done, wait));
      }
    } finally {
      if (file !== undefined) fs.closeSync(file);
    }
  }

  #size(name) {
    const source = this.#files[name];
    return typeof source === 'string' ? fs.statSync(source).size : source;
  }
}
