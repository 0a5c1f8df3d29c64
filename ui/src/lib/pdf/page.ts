import { fieldItems, notes, type RawAnnotation } from './annotations';
import { readingOrder, type Line } from './columns';
import { frames, type RawItem } from './geometry';
import { lineText, logicalOrder } from './lines';
import { joinBrokenWords, normalize } from './words';

/** The text of one page: runs joined by where they stand, form values among them, notes last. */
export function pageText(items: RawItem[], annotations: RawAnnotation[] = []): string {
  const blocks = frames([...items, ...fieldItems(annotations)]).map(({ boxes }) =>
    textOf(readingOrder(boxes)),
  );
  const remarks = notes(annotations).map((note) => `[Note: ${normalize(note)}]`);
  return [...blocks, ...remarks].filter((block) => block !== '').join('\n\n');
}

/** The same runs in the order in which their text is read; those without text are left out. */
export function readingOrderOf(items: RawItem[]): number[] {
  return frames(items).flatMap(({ boxes }) =>
    readingOrder(boxes).flatMap((line) => logicalOrder(line.boxes).map((box) => box.order)),
  );
}

/** Lines further apart than the usual leading begin a paragraph. */
function textOf(lines: Line[]): string {
  const pitch = usualPitch(lines);
  const paragraphs: string[][] = [];
  lines.forEach((line, i) => {
    const before = lines[i - 1];
    const text = normalize(lineText(line.boxes));
    if (text === '') return;
    const apart =
      before && !line.opensBlock && line.v - before.v > 1.4 * Math.max(pitch, line.size);
    // A sentence may go on at the top of the next column.
    const last = paragraphs.at(-1);
    const goesOn = /^\p{Ll}/u.test(text) && /[\p{L},\-\u00ad\u2010]$/u.test(last?.at(-1) ?? '');
    if (!last || apart || (line.opensBlock && !goesOn)) paragraphs.push([text]);
    else last.push(text);
  });
  return paragraphs.map((paragraph) => joinBrokenWords(paragraph).join('\n')).join('\n\n');
}

function usualPitch(lines: Line[]): number {
  const steps = lines
    .flatMap((line, i) => (i > 0 && !line.opensBlock ? [line.v - (lines[i - 1]?.v ?? 0)] : []))
    .filter((step) => step > 0)
    .sort((a, b) => a - b);
  return steps[(steps.length - 1) >> 1] ?? 0;
}
