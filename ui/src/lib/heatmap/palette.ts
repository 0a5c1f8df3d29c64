import type { Palette } from './draw';

/** The colours of the strip as they are where an element stands. */
export function paletteOf(element: Element): Palette {
  const style = getComputedStyle(element);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  return {
    track: colour('--data-track'),
    store: colour('--data-store'),
    forgotten: colour('--data-forgotten'),
    unread: colour('--text-3'),
    keptLow: colour('--data-kept-low'),
    keptHigh: colour('--data-kept-high'),
    recent: colour('--data-recent'),
    pinned: colour('--data-pinned'),
    turn: colour('--text'),
    page: colour('--text-3'),
    label: colour('--text-3'),
    cursor: colour('--accent'),
  };
}
