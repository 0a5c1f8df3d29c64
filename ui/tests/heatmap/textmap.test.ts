// @vitest-environment jsdom
import { describe, expect, test } from 'vitest';
import { Stretch } from '../../src/lib/heatmap/pieces';
import { shownBy, shownIn, TextMap } from '../../src/lib/heatmap/textmap';

/** One token for every word, with the white space before it. */
function stretchOf(start: number, text: string): Stretch {
  const words = text.match(/\s*\S+/g) ?? [];
  return new Stretch(start, { text: words.join(''), lengths: words.map((word) => word.length) });
}

function host(html: string): HTMLElement {
  const element = document.createElement('div');
  element.innerHTML = html;
  document.body.append(element);
  return element;
}

describe('text on the screen', () => {
  const answer = host(
    '<p>Move the <strong>slider</strong> down.</p><pre><button>Copy</button><code>run it</code></pre>',
  );
  const map = new TextMap(
    shownBy(answer),
    stretchOf(50, 'Move the **slider** down.\n\n```sh\nrun it\n```'),
  );

  test('leads to the tokens of each word, and what is a control of the window to none', () => {
    const words = map
      .words()
      .map(({ node, from, to, positions }) => [node.data.slice(from, to).trim(), ...positions]);
    expect(words).toEqual([
      ['Move', 50, 51],
      ['the', 51, 52],
      ['slider', 52, 53],
      ['down.', 53, 54],
      ['run', 55, 56],
      ['it', 56, 57],
    ]);
  });

  test('a selection is the tokens from its first word to its last', () => {
    const range = document.createRange();
    const [first, , third] = map.shown.nodes;
    range.setStart(first?.node as Text, 5);
    range.setEnd(third?.node as Text, 3);
    expect(map.selected(range)).toEqual([[51, 54]]);
  });

  test('a selection outside of it is nothing', () => {
    const other = host('<p>elsewhere</p>');
    const range = document.createRange();
    range.selectNodeContents(other);
    expect(map.selected(range)).toEqual([]);
  });

  test('the pieces of a page are taken in the order in which they are read', () => {
    const page = host('<span>second column</span><span>first column</span>');
    const [second, first] = [...page.children].map((span) => span.firstChild as Text);
    const inOrder = shownIn([first as Text, second as Text]);
    const read = new TextMap(inOrder, stretchOf(0, 'first column second column'));
    const range = document.createRange();
    range.selectNodeContents(first as Text);
    expect(read.selected(range)).toEqual([[0, 2]]);
  });
});
