import { Channel, invoke } from '@tauri-apps/api/core';
import { getCurrentWebview } from '@tauri-apps/api/webview';
import type { Api } from './api';
import type { AppEvent } from './types';

/** The shell, through Tauri's commands. */
export const tauriApi: Api = {
  async subscribe(onEvents) {
    const channel = new Channel<AppEvent[]>();
    channel.onmessage = onEvents;
    await invoke('subscribe', { channel });
  },
  onDrag(onDrag) {
    return getCurrentWebview().onDragDropEvent(({ payload }) => {
      if (payload.type === 'drop') onDrag({ type: 'drop', paths: payload.paths });
      else onDrag({ type: payload.type === 'leave' ? 'leave' : 'over' });
    });
  },
  appInfo: () => invoke('app_info'),
  openDataFolder: () => invoke('open_data_folder'),

  models: () => invoke('models'),
  loadModel: (path) => invoke('load_model', { path }),
  ejectModel: () => invoke('eject_model'),
  fetchModel: (id) => invoke('fetch_model', { id }),
  pauseFetch: (id) => invoke('pause_fetch', { id }),
  cancelFetch: (id) => invoke('cancel_fetch', { id }),
  removeModel: (path) => invoke('remove_model', { path }),
  shellSettings: () => invoke('shell_settings'),
  changeSettings: (settings) => invoke('change_settings', { settings }),
  countTokens: (texts) => invoke('count_tokens', { texts }),

  chats: () => invoke('chats'),
  openChat: (id) => invoke('open_chat', { id }),
  renameChat: (id, title) => invoke('rename_chat', { id, title }),
  pinChat: (id, pinned) => invoke('pin_chat', { id, pinned }),
  deleteChat: (id) => invoke('delete_chat', { id }),
  restoreChat: (id) => invoke('restore_chat', { id }),
  searchChats: (words) => invoke('search_chats', { words }),
  exportChat: (id, format) => invoke('export_chat', { id, format }),
  importChat: (path) => invoke('import_chat', { path }),

  send: (question) => invoke('send', { question }),
  answerAgain: (again) => invoke('answer_again', { again }),
  showBranch: (chat, message) => invoke('show_branch', { chat, message }),
  stop: (chat) => invoke('stop', { chat }),
  compare: (request) => invoke('compare', { request }),
  stopComparison: () => invoke('stop_comparison'),
  lastComparison: (chat) => invoke('last_comparison', { chat }),
  setBudget: (chat, budget) => invoke('set_budget', { chat, budget }),
  pin: (chat, passage, pinned) => invoke('pin', { chat, passage, pinned }),
  pieces: (chat, start, end) => invoke('pieces', { chat, start, end }),
  showLayers: (chat, bins) => invoke('show_layers', { chat, bins }),
  textAt: (chat, start, end) => invoke('text_at', { chat, start, end }),

  pickFiles: () => invoke('pick_files'),
  statFile: (path) => invoke('stat_file', { path }),
  readFile: (path) => invoke('read_file', { path }),
  readDocument: (id) => invoke('read_document', { id }),
  documentPages: (id) => invoke('document_pages', { id }),
  openLink: (url) => invoke('open_link', { url }),

  snapshotUse: () => invoke('snapshot_use'),
  setSnapshotLimit: (bytes) => invoke('set_snapshot_limit', { bytes }),
};
