import type * as PdfJs from 'pdfjs-dist';
import type { Engine } from './extract';
import type { RawItem } from './geometry';
import { readingOrderOf } from './page';

/** A PDF that is open to be looked at. */
export interface OpenPdf {
  engine: Engine;
  pdf: PdfJs.PDFDocumentProxy;
  close(): void;
}

/**
 * Opens a PDF to draw its pages. `onPassword` is asked as often as it takes; `null` gives up.
 */
export async function openPdf(
  engine: Engine,
  data: Uint8Array,
  onPassword: (wrong: boolean) => Promise<string | null>,
): Promise<OpenPdf> {
  const { pdfjs, assets } = engine;
  const task = pdfjs.getDocument({
    data,
    cMapUrl: `${assets}cmaps/`,
    cMapPacked: true,
    standardFontDataUrl: `${assets}standard_fonts/`,
    wasmUrl: `${assets}wasm/`,
    verbosity: pdfjs.VerbosityLevel.ERRORS,
  });
  task.onPassword = (update: (password: string | Error) => void, reason: number) => {
    const wrong = reason === pdfjs.PasswordResponses.INCORRECT_PASSWORD;
    void onPassword(wrong).then((password) => update(password ?? new Error('no password')));
  };
  return { engine, pdf: await task.promise, close: () => void task.destroy() };
}

/** A page that has been drawn. */
export interface DrawnPage {
  /** Its text, in the order in which it is read. */
  texts: Text[];
  cancel(): void;
}

/** Draws a page onto `canvas`, as wide as it is to be shown, and lays its text over it to be selected. */
export async function drawPage(
  { engine: { pdfjs }, pdf }: OpenPdf,
  number: number,
  canvas: HTMLCanvasElement,
  layer: HTMLElement,
  width: number,
  dpr: number,
): Promise<DrawnPage> {
  const page = await pdf.getPage(number);
  const scale = width / page.getViewport({ scale: 1 }).width;
  const viewport = page.getViewport({ scale });
  canvas.width = Math.round(viewport.width * dpr);
  canvas.height = Math.round(viewport.height * dpr);
  const painting = page.render({
    canvas,
    viewport: page.getViewport({ scale: scale * dpr }),
  });
  const content = await page.getTextContent();
  layer.replaceChildren();
  layer.style.setProperty('--total-scale-factor', String(scale));
  const text = new pdfjs.TextLayer({ textContentSource: content, container: layer, viewport });
  const items = content.items.filter((item): item is typeof item & RawItem => 'str' in item);
  await text.render();
  await painting.promise;
  const texts = readingOrderOf(items).flatMap((i) => {
    const node = text.textDivs[i]?.firstChild;
    return node instanceof globalThis.Text ? [node] : [];
  });
  return {
    texts,
    cancel: () => {
      painting.cancel();
      text.cancel();
      page.cleanup();
    },
  };
}

/** Width and height of a page, in the units of its PDF. */
export async function pageSize({ pdf }: OpenPdf, number: number): Promise<[number, number]> {
  const { width, height } = (await pdf.getPage(number)).getViewport({ scale: 1 });
  return [width, height];
}
