import type { Range as Positions } from '../cache/ranges';
import { bridged, type TextMap } from '../heatmap/textmap';

/** Text on the screen that leads to positions of the context; `null` where the model has not read it. */
export type Source = () => Promise<TextMap | null>;

/** What of the screen is part of the context, so that a selection in it can be pinned. */
export class Passages {
  readonly #sources = new Map<Element, Source>();

  /** Makes an element's text selectable as a passage, until the returned function is called. */
  add(element: Element, source: Source): () => void {
    this.#sources.set(element, source);
    return () => this.#sources.delete(element);
  }

  /** Whether a selection lies in anything that could be pinned. */
  touches(range: Range): boolean {
    return [...this.#sources.keys()].some((element) => range.intersectsNode(element));
  }

  /** The positions that a selection stands for. */
  async positions(range: Range): Promise<Positions[]> {
    const touched = [...this.#sources].filter(([element]) => range.intersectsNode(element));
    const maps = await Promise.all(touched.map(([, source]) => source().catch(() => null)));
    return bridged(maps.flatMap((map) => map?.selected(range) ?? []));
  }
}
