import { colour } from './highlight';

type SetMath = (element: HTMLElement) => void;

let setMath: SetMath | undefined;
let coming: Promise<void> | undefined;

/**
 * Gives rendered Markdown what takes a library: colours to code, type to formulas. Both are loaded when the first
 * answer needs them; until then their source stands there.
 */
export function enrich(root: HTMLElement): void {
  root.querySelectorAll<HTMLElement>('code[data-lang]').forEach(colour);
  const formulas = root.querySelectorAll<HTMLElement>('[data-math]');
  if (formulas.length === 0) return;
  if (setMath) formulas.forEach(setMath);
  else void loadMath().then(() => setMath && formulas.forEach(setMath));
}

function loadMath(): Promise<void> {
  coming ??= import('./katex').then((module) => {
    setMath = module.setMath;
  });
  return coming;
}
