import type {
  Again,
  ApiError,
  AppEvent,
  AppInfo,
  Chat,
  ChatSummary,
  CompareRequest,
  CompareStarted,
  Comparison,
  ExportFormat,
  Found,
  ModelEntry,
  Passage,
  PickedFile,
  Pieces,
  Question,
  Sent,
  ShellSettings,
  SnapshotUse,
} from './types';

/** What is being dragged over the window. */
export type DragEvent = { type: 'over' } | { type: 'leave' } | { type: 'drop'; paths: string[] };

/**
 * Everything the window asks of the shell. Calls that fail throw an {@link ApiError}.
 * The one implementation that ships is `tauri.ts`; tests bring their own.
 */
export interface Api {
  /** Batches of at most 20 a second; the first one carries the current status and gauge. */
  subscribe(onEvents: (events: AppEvent[]) => void): Promise<void>;
  onDrag(onDrag: (event: DragEvent) => void): Promise<() => void>;
  appInfo(): Promise<AppInfo>;
  /** Shows it in the file manager. */
  openDataFolder(): Promise<void>;

  models(): Promise<ModelEntry[]>;
  loadModel(path: string): Promise<void>;
  ejectModel(): Promise<void>;
  fetchModel(id: string): Promise<void>;
  /** Stops a download; what has arrived is kept. */
  pauseFetch(id: string): Promise<void>;
  /** Gives a download up, also a paused one. */
  cancelFetch(id: string): Promise<void>;
  removeModel(path: string): Promise<void>;
  shellSettings(): Promise<ShellSettings>;
  changeSettings(settings: ShellSettings): Promise<void>;
  countTokens(texts: string[]): Promise<number[]>;

  chats(): Promise<ChatSummary[]>;
  openChat(id: string): Promise<Chat>;
  renameChat(id: string, title: string): Promise<void>;
  pinChat(id: string, pinned: boolean): Promise<void>;
  /** Takes a chat out of the list; for a minute, {@link restoreChat} puts it back. */
  deleteChat(id: string): Promise<void>;
  restoreChat(id: string): Promise<void>;
  searchChats(words: string): Promise<Found[]>;
  /** Where the person had it written; `null` when they thought better of it. */
  exportChat(id: string, format: ExportFormat): Promise<string | null>;
  /** From a file that was dropped, or that the person is asked for. */
  importChat(path: string | null): Promise<ChatSummary | null>;

  send(question: Question): Promise<Sent>;
  /** Has an answer written anew, or its rest. */
  answerAgain(again: Again): Promise<Sent>;
  /** Shows the branch of a chat that a message stands in. */
  showBranch(chat: string, message: number): Promise<Chat>;
  stop(chat: string): Promise<void>;
  /** Begins to answer one question under several caches; how it goes arrives as events. */
  compare(request: CompareRequest): Promise<CompareStarted>;
  stopComparison(): Promise<void>;
  /** The last one of a chat. */
  lastComparison(chat: string): Promise<Comparison | null>;
  setBudget(chat: string, budget: number | null): Promise<void>;
  /** Keeps a passage from eviction, or no longer. */
  pin(chat: string, passage: Passage, pinned: boolean): Promise<void>;
  textAt(chat: string, start: number, end: number): Promise<string>;
  /** The same, with the place of each token in it. */
  pieces(chat: string, start: number, end: number): Promise<Pieces>;
  /** Asks for a `layers` event. */
  showLayers(chat: string, bins: number): Promise<void>;

  pickFiles(): Promise<PickedFile[]>;
  statFile(path: string): Promise<PickedFile>;
  readFile(path: string): Promise<ArrayBuffer>;
  /** The copy of a document's file, as it was when it was attached. */
  readDocument(id: number): Promise<ArrayBuffer>;
  documentPages(id: number): Promise<string[]>;
  openLink(url: string): Promise<void>;

  /** What the caches of chats take on the disk, and may take. */
  snapshotUse(): Promise<SnapshotUse>;
  setSnapshotLimit(bytes: number): Promise<SnapshotUse>;
}

/** Any thrown thing as an error that can be shown. */
export function asApiError(error: unknown): ApiError {
  if (typeof error === 'object' && error !== null && 'message' in error) {
    const code = 'code' in error && typeof error.code === 'string' ? error.code : 'unknown';
    return { code, message: String(error.message) };
  }
  return { code: 'unknown', message: String(error) };
}
