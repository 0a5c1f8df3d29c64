import '@fontsource-variable/inter/wght.css';
import './app.css';
import { mount } from 'svelte';
import Root from './App.svelte';
import { tauriApi } from './lib/ipc/tauri';
import { loadEngine } from './lib/pdf/pdfjs';
import { App } from './lib/state/app.svelte';

const target = document.getElementById('app');
if (target) mount(Root, { target, props: { app: new App(tauriApi, localStorage, loadEngine) } });
