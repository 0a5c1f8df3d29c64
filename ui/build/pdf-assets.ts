import { createReadStream } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import type { Plugin } from 'vite';

const ROOT = path.dirname(createRequire(import.meta.url).resolve('pdfjs-dist/package.json'));
const FOLDERS = ['cmaps', 'standard_fonts', 'wasm'];
/** The scripting engine for forms is never started. */
const UNUSED = /^quickjs/;

/** Ships what PDF.js loads while it reads, under `pdfjs/`: CMaps, standard fonts and decoders. */
export function pdfAssets(): Plugin {
  return {
    name: 'pdf-assets',
    configureServer(server) {
      server.middlewares.use('/pdfjs/', (request, response, next) => {
        const [folder = '', file = ''] = (request.url ?? '').replace(/^\//, '').split('/');
        if (!FOLDERS.includes(folder)) {
          next();
          return;
        }
        const type = file.endsWith('.wasm') ? 'application/wasm' : 'application/octet-stream';
        response.setHeader('Content-Type', file.endsWith('.js') ? 'text/javascript' : type);
        createReadStream(path.join(ROOT, folder, path.basename(file)))
          .on('error', () => {
            next();
          })
          .pipe(response);
      });
    },
    async generateBundle() {
      for (const folder of FOLDERS) {
        for (const file of await readdir(path.join(ROOT, folder))) {
          if (UNUSED.test(file)) continue;
          this.emitFile({
            type: 'asset',
            fileName: `pdfjs/${folder}/${file}`,
            source: await readFile(path.join(ROOT, folder, file)),
          });
        }
      }
    },
  };
}
