import path from 'node:path';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { svelteTesting } from '@testing-library/svelte/vite';

import { defineConfig } from 'vitest/config';
import { pdfAssets } from './build/pdf-assets.ts';

/** For the preview and the tests. */
const PDFS = path.resolve(import.meta.dirname, '../tests/pdfs');

export default defineConfig({
  plugins: [svelte(), svelteTesting({ autoCleanup: false }), pdfAssets()],
  clearScreen: false,
  server: { port: 1420, strictPort: true, fs: { allow: ['.', PDFS] } },
  define: { 'import.meta.env.PREVIEW_PDFS': JSON.stringify(PDFS) },
  build: {
    target: ['es2023', 'safari17'],
    // Every script and worker is a file of its own: the window's CSP allows no inline code.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: {
    environment: 'node',
    // On a busy machine of two cores.
    testTimeout: 30_000,
    include: ['tests/**/*.test.ts'],
  },
});
