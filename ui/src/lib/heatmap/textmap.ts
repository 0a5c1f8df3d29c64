import type { Range as Positions } from '../cache/ranges';
import { align } from './align';
import type { Stretch } from './pieces';

/** Text as the window shows it: pieces of the page in reading order. */
export interface Shown {
  text: string;
  nodes: { node: Text; start: number }[];
}

/** What an element shows, but for what is not part of its text (`data-aside`). */
export function shownBy(element: Element): Shown {
  const nodes: Text[] = [];
  const walker = document.createTreeWalker(
    element,
    NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT,
    {
      acceptNode: (node) =>
        node instanceof Element && (node.tagName === 'BUTTON' || node.hasAttribute('data-aside'))
          ? NodeFilter.FILTER_REJECT
          : NodeFilter.FILTER_ACCEPT,
    },
  );
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node instanceof Text) nodes.push(node);
  }
  return shownIn(nodes);
}

export function shownIn(texts: Text[]): Shown {
  const nodes: Shown['nodes'] = [];
  let text = '';
  for (const node of texts) {
    nodes.push({ node, start: text.length });
    // Between two pieces nothing runs together.
    text += `${node.data}\n`;
  }
  return { text, nodes };
}

/** A word and the positions that spell it. */
export interface Word {
  node: Text;
  /** Offsets in the node. */
  from: number;
  to: number;
  positions: Positions;
}

const WORDS =
  /[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]{1,24}\s?/g;
/** Tokens between two selected ones that are taken along: labels, marks, broken words. */
const BRIDGE = 8;

/** Leads from what is shown to positions of the context, and back. */
export class TextMap {
  /** For each unit of the shown text, the position that spells it; -1 for none. */
  readonly #positions: Int32Array;

  constructor(
    readonly shown: Shown,
    stretch: Stretch,
  ) {
    this.#positions = align(shown.text, stretch.text).map((index) =>
      index < 0 ? -1 : stretch.positionAt(index),
    );
  }

  words(): Word[] {
    const words: Word[] = [];
    for (const { node, start } of this.shown.nodes) {
      for (const match of node.data.matchAll(WORDS)) {
        const [from, to] = [match.index, match.index + match[0].length];
        const positions = this.#within(start + from, start + to);
        if (positions) words.push({ node, from, to, positions });
      }
    }
    return words;
  }

  /** Positions that a selection covers. */
  selected(range: Range): Positions[] {
    const found: Positions[] = [];
    for (const { node, start } of this.shown.nodes) {
      if (!range.intersectsNode(node)) continue;
      const from = node === range.startContainer ? range.startOffset : 0;
      const to = node === range.endContainer ? range.endOffset : node.length;
      const positions = from < to ? this.#within(start + from, start + to) : null;
      if (positions) found.push(positions);
    }
    return bridged(found);
  }

  /** The first piece of the page that shows something of `start..end`. */
  find(start: number, end: number): { node: Text; offset: number } | null {
    for (const { node, start: first } of this.shown.nodes) {
      for (let i = 0; i < node.length; i += 1) {
        const position = this.#positions[first + i] ?? -1;
        if (position >= start && position < end) return { node, offset: i };
      }
    }
    return null;
  }

  #within(from: number, to: number): Positions | null {
    let [least, most] = [Infinity, -1];
    for (let i = from; i < to; i += 1) {
      const position = this.#positions[i] ?? -1;
      if (position < 0) continue;
      least = Math.min(least, position);
      most = Math.max(most, position);
    }
    return most < 0 ? null : [least, most + 1];
  }
}

/** Sorted, with small gaps closed. */
export function bridged(ranges: Positions[]): Positions[] {
  const out: Positions[] = [];
  for (const [start, end] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const last = out.at(-1);
    if (last && start - last[1] <= BRIDGE) last[1] = Math.max(last[1], end);
    else out.push([start, end]);
  }
  return out;
}
