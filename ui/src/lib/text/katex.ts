import 'katex/dist/katex.min.css';
import katex from 'katex';

/** Sets a formula in place of its source. What KaTeX cannot read stays as it was written. */
export function setMath(element: HTMLElement): void {
  const source = element.textContent;
  try {
    katex.render(element.dataset.tex ?? '', element, {
      displayMode: element.dataset.math === 'display',
      throwOnError: true,
      strict: 'ignore',
      // No link, picture or class out of an answer, and nothing that covers the window.
      trust: false,
      maxSize: 20,
      maxExpand: 500,
    });
    // What stands there now is not the text that the model has read.
    element.toggleAttribute('data-aside', true);
  } catch (error) {
    element.textContent = source;
    element.title = error instanceof Error ? error.message : String(error);
  }
}
