import workerUrl from 'pdfjs-dist/legacy/build/pdf.worker.min.mjs?url';
import type { Engine } from './extract';

let engine: Promise<Engine> | undefined;

/** PDF.js, loaded when the first PDF is attached. Its files are put under `pdfjs/` by the build. */
export function loadEngine(): Promise<Engine> {
  engine ??= import('pdfjs-dist/legacy/build/pdf.mjs').then((pdfjs) => {
    pdfjs.GlobalWorkerOptions.workerSrc = workerUrl;
    return { pdfjs, assets: new URL('pdfjs/', document.baseURI).href };
  });
  return engine;
}
