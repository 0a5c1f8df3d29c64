import type * as PdfJs from 'pdfjs-dist';
import { t } from '../i18n';
import type { RawAnnotation } from './annotations';
import { PdfError } from './errors';
import type { RawItem } from './geometry';
import { pageText } from './page';
import type { PageResult } from './report';

/** PDF.js and where the files lie that it loads while it reads. */
export interface Engine {
  pdfjs: typeof PdfJs;
  /** `cmaps/`, `standard_fonts/` and `wasm/` lie under it; ends with a slash. */
  assets: string;
}

export interface ExtractOptions {
  signal?: AbortSignal;
  onProgress?: (done: number, total: number) => void;
  /** Asks the person; `wrong` after a password that did not open it. `null` gives up. */
  onPassword?: (wrong: boolean) => Promise<string | null>;
}

/** After so many image pages in a row the others without text are taken to be the same scan. */
const SURE_OF_SCAN = 4;

/**
 * Reads a PDF page by page. A page that fails is reported in its place and loses no other.
 *
 * @throws PdfError when nothing could be read at all.
 */
export async function extractPdf(
  { pdfjs, assets }: Engine,
  data: Uint8Array,
  { signal, onProgress, onPassword }: ExtractOptions = {},
): Promise<PageResult[]> {
  const task = pdfjs.getDocument({
    data,
    cMapUrl: `${assets}cmaps/`,
    cMapPacked: true,
    standardFontDataUrl: `${assets}standard_fonts/`,
    wasmUrl: `${assets}wasm/`,
    // Fonts are read for their encodings only: nothing is drawn.
    disableFontFace: true,
    useSystemFonts: false,
    verbosity: pdfjs.VerbosityLevel.ERRORS,
  });
  let gaveUp = false;
  task.onPassword = (update: (password: string | Error) => void, reason: number) => {
    const wrong = reason === pdfjs.PasswordResponses.INCORRECT_PASSWORD;
    void (onPassword?.(wrong) ?? Promise.resolve(null)).then((password) => {
      gaveUp = password === null;
      update(password ?? new Error('no password'));
    });
  };
  const abort = () => void task.destroy();
  signal?.addEventListener('abort', abort, { once: true });
  try {
    const pdf = await task.promise;
    const pages: PageResult[] = [];
    let scans = 0;
    for (let page = 1; page <= pdf.numPages; page += 1) {
      if (signal?.aborted) throw new PdfError('cancelled', t.documents.pdf.cancelled);
      onProgress?.(page - 1, pdf.numPages);
      const result = await readPage(pdfjs, pdf, page, scans >= SURE_OF_SCAN);
      scans = result.kind === 'image' ? scans + 1 : 0;
      pages.push(result);
    }
    onProgress?.(pdf.numPages, pdf.numPages);
    if (pages.every((page) => page.kind !== 'text')) throw nothingRead(pages);
    return pages;
  } catch (error) {
    throw explain(error, gaveUp, signal);
  } finally {
    signal?.removeEventListener('abort', abort);
    await task.destroy();
  }
}

async function readPage(
  pdfjs: typeof PdfJs,
  pdf: PdfJs.PDFDocumentProxy,
  number: number,
  assumeScan: boolean,
): Promise<PageResult> {
  try {
    const page = await pdf.getPage(number);
    const content = await page.getTextContent({ disableNormalization: true });
    const items = content.items.filter((item): item is typeof item & RawItem => 'str' in item);
    // Annotations may be broken where the text is not.
    const annotations = await page.getAnnotations().then(
      (all) => all as RawAnnotation[],
      () => [],
    );
    const text = pageText(items, annotations);
    const kind =
      text !== '' ? 'text' : assumeScan || (await showsImage(pdfjs, page)) ? 'image' : 'blank';
    page.cleanup();
    return { page: number, text, kind };
  } catch (error) {
    if (pdf.loadingTask.destroyed) throw error;
    return { page: number, text: '', kind: 'failed' };
  }
}

async function showsImage(pdfjs: typeof PdfJs, page: PdfJs.PDFPageProxy): Promise<boolean> {
  const { OPS } = pdfjs;
  const painting = new Set<number>([
    OPS.paintImageXObject,
    OPS.paintImageXObjectRepeat,
    OPS.paintInlineImageXObject,
    OPS.paintInlineImageXObjectGroup,
    OPS.paintImageMaskXObject,
    OPS.paintImageMaskXObjectGroup,
    OPS.paintImageMaskXObjectRepeat,
  ]);
  const { fnArray } = await page.getOperatorList();
  return fnArray.some((op) => painting.has(op));
}

function nothingRead(pages: PageResult[]): PdfError {
  if (pages.every((page) => page.kind === 'failed')) {
    return new PdfError('broken', t.documents.pdf.allDamaged);
  }
  if (pages.every((page) => page.kind === 'blank')) {
    return new PdfError('no_text', t.documents.pdf.blank);
  }
  return new PdfError('no_text', t.documents.pdf.allImages(pages.length));
}

/** What went wrong with a PDF, in a sentence. */
export function explain(error: unknown, gaveUp = false, signal?: AbortSignal): PdfError {
  if (signal?.aborted) return new PdfError('cancelled', t.documents.pdf.cancelled);
  if (error instanceof PdfError) return error;
  const name = error instanceof Error ? error.name : '';
  if (gaveUp || name === 'PasswordException') {
    return new PdfError('password', t.documents.pdf.password);
  }
  if (name === 'InvalidPDFException') {
    return new PdfError('broken', t.documents.pdf.broken);
  }
  const detail = error instanceof Error ? error.message : String(error);
  return new PdfError('broken', t.documents.pdf.unreadable(detail));
}
