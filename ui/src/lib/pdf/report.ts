import { t } from '../i18n';

/** What came of one page. */
export interface PageResult {
  /** Counted from 1. */
  page: number;
  text: string;
  kind: 'text' | 'image' | 'blank' | 'failed';
}

/** One plain sentence for each kind of page that gave no text though it may hold some. */
export function problems(pages: PageResult[]): string[] {
  const of = (kind: PageResult['kind']) => pages.filter((p) => p.kind === kind).map((p) => p.page);
  const images = of('image');
  const failed = of('failed');
  const out: string[] = [];
  if (images.length > 0) {
    out.push(t.documents.pdf.images(pageList(images), images.length));
  }
  if (failed.length > 0) {
    out.push(t.documents.pdf.damaged(pageList(failed), failed.length));
  }
  return out;
}

/** `3, 7–9`: neighbouring pages as ranges. */
export function pageList(pages: number[]): string {
  const ranges: [number, number][] = [];
  for (const page of pages) {
    const last = ranges.at(-1);
    if (last && page === last[1] + 1) last[1] = page;
    else ranges.push([page, page]);
  }
  return ranges
    .flatMap(([a, b]) => (b - a === 1 ? [`${a}`, `${b}`] : [a === b ? `${a}` : `${a}–${b}`]))
    .join(', ');
}

/** Where each page begins in the text of all pages put together with `separator`; one more for the end. */
export function pageOffsets(pages: string[], separator = '\n\n'): number[] {
  const offsets = [0];
  pages.forEach((page, i) => {
    const gap = i < pages.length - 1 ? separator.length : 0;
    offsets.push((offsets[i] ?? 0) + page.length + gap);
  });
  return offsets;
}
