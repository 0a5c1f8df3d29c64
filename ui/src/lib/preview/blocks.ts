/** A part of a long text that is laid out by itself. */
export interface Block {
  from: number;
  to: number;
}

const USUAL = 2400;

/** Cuts a text into parts of some 40 lines, between lines where there are any, so that only what is near is laid out. */
export function blocksOf(text: string, usual = USUAL): Block[] {
  const blocks: Block[] = [];
  for (let from = 0; from < text.length;) {
    const to = cut(text, from, usual);
    blocks.push({ from, to });
    from = to;
  }
  return blocks;
}

function cut(text: string, from: number, usual: number): number {
  const end = from + usual;
  if (end >= text.length) return text.length;
  const line = text.lastIndexOf('\n', end);
  if (line > from + usual / 2) return line + 1;
  const space = text.lastIndexOf(' ', end);
  if (space > from + usual / 2) return space + 1;
  // Between the two halves of one character nothing is cut.
  const half = text.charCodeAt(end);
  return half >= 0xdc00 && half <= 0xdfff ? end + 1 : end;
}

/** The block that holds an index of the text. */
export function blockAt(blocks: Block[], index: number): number {
  let low = 0;
  let high = blocks.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((blocks[middle]?.to ?? 0) <= index) low = middle + 1;
    else high = middle;
  }
  return low;
}
