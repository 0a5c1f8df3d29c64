import type { HLJSApi, LanguageFn } from 'highlight.js';

type Loader = () => Promise<{ default: LanguageFn }>;

/** Languages that answers are likely to hold; each is a file of its own, read when it is first seen. */
const LOADERS: Record<string, Loader> = {
  bash: () => import('highlight.js/lib/languages/bash'),
  c: () => import('highlight.js/lib/languages/c'),
  cpp: () => import('highlight.js/lib/languages/cpp'),
  csharp: () => import('highlight.js/lib/languages/csharp'),
  css: () => import('highlight.js/lib/languages/css'),
  diff: () => import('highlight.js/lib/languages/diff'),
  dockerfile: () => import('highlight.js/lib/languages/dockerfile'),
  go: () => import('highlight.js/lib/languages/go'),
  haskell: () => import('highlight.js/lib/languages/haskell'),
  ini: () => import('highlight.js/lib/languages/ini'),
  java: () => import('highlight.js/lib/languages/java'),
  javascript: () => import('highlight.js/lib/languages/javascript'),
  json: () => import('highlight.js/lib/languages/json'),
  julia: () => import('highlight.js/lib/languages/julia'),
  kotlin: () => import('highlight.js/lib/languages/kotlin'),
  latex: () => import('highlight.js/lib/languages/latex'),
  lua: () => import('highlight.js/lib/languages/lua'),
  makefile: () => import('highlight.js/lib/languages/makefile'),
  markdown: () => import('highlight.js/lib/languages/markdown'),
  matlab: () => import('highlight.js/lib/languages/matlab'),
  perl: () => import('highlight.js/lib/languages/perl'),
  php: () => import('highlight.js/lib/languages/php'),
  powershell: () => import('highlight.js/lib/languages/powershell'),
  python: () => import('highlight.js/lib/languages/python'),
  r: () => import('highlight.js/lib/languages/r'),
  ruby: () => import('highlight.js/lib/languages/ruby'),
  rust: () => import('highlight.js/lib/languages/rust'),
  scala: () => import('highlight.js/lib/languages/scala'),
  sql: () => import('highlight.js/lib/languages/sql'),
  swift: () => import('highlight.js/lib/languages/swift'),
  typescript: () => import('highlight.js/lib/languages/typescript'),
  xml: () => import('highlight.js/lib/languages/xml'),
  yaml: () => import('highlight.js/lib/languages/yaml'),
};

const ALIASES: Record<string, string> = {
  'c#': 'csharp',
  'c++': 'cpp',
  cc: 'cpp',
  console: 'bash',
  cs: 'csharp',
  docker: 'dockerfile',
  golang: 'go',
  h: 'c',
  hpp: 'cpp',
  hs: 'haskell',
  html: 'xml',
  jl: 'julia',
  js: 'javascript',
  jsx: 'javascript',
  kt: 'kotlin',
  make: 'makefile',
  md: 'markdown',
  patch: 'diff',
  pl: 'perl',
  ps1: 'powershell',
  py: 'python',
  rb: 'ruby',
  rs: 'rust',
  sh: 'bash',
  shell: 'bash',
  svelte: 'xml',
  svg: 'xml',
  tex: 'latex',
  toml: 'ini',
  ts: 'typescript',
  tsx: 'typescript',
  vue: 'xml',
  yml: 'yaml',
  zsh: 'bash',
};

/** Past this colour costs more than it helps. */
const LONGEST = 20_000;

let core: HLJSApi | undefined;
const loading = new Map<string, Promise<void>>();

/** Colours a piece of code where its language is known: at once where that is loaded, otherwise as soon as it is. */
export function colour(code: HTMLElement): void {
  const name = code.dataset.lang?.toLowerCase() ?? '';
  const language = ALIASES[name] ?? name;
  const text = code.textContent;
  if (!(language in LOADERS) || text.length > LONGEST) return;
  if (core?.getLanguage(language)) paint(core, code, text, language);
  else {
    void load(language).then(
      () => core && code.textContent === text && paint(core, code, text, language),
    );
  }
}

function paint(core: HLJSApi, code: HTMLElement, text: string, language: string): void {
  // Highlight.js escapes the text that it is given and adds spans, nothing else.
  code.innerHTML = core.highlight(text, { language, ignoreIllegals: true }).value;
}

function load(language: string): Promise<void> {
  let coming = loading.get(language);
  if (!coming) {
    coming = Promise.all([import('highlight.js/lib/core'), LOADERS[language]?.()]).then(
      ([{ default: hljs }, module]) => {
        if (module) hljs.registerLanguage(language, module.default);
        core = hljs;
      },
    );
    loading.set(language, coming);
  }
  return coming;
}
