import type { ApiError } from '../ipc/types';
import { language, type Language } from './language.svelte';
import { errors as zh } from './zh/errors';

/** Every code that the shell, the engine or a download may report. */
export const CODES = [
  'already_open',
  'architecture',
  'browser',
  'busy',
  'cancelled',
  'checksum',
  'closing',
  'compare_busy',
  'compare_columns',
  'compare_context',
  'compare_memory',
  'complete',
  'compute',
  'context_full',
  'disk_full',
  'download_busy',
  'download_interrupted',
  'empty',
  'empty_question',
  'empty_title',
  'file',
  'file_kind',
  'file_manager',
  'file_size',
  'folder',
  'gpu_engine',
  'guard_budget',
  'hub_error',
  'hub_offline',
  'hub_rate_limited',
  'link_kind',
  'memory_budget',
  'memory_chunk',
  'memory_recall',
  'memory_store',
  'memory_stream',
  'model_access',
  'model_changed',
  'model_file',
  'model_io',
  'model_not_found',
  'model_not_ours',
  'model_read',
  'network_off',
  'no_chat',
  'no_copy',
  'no_model',
  'no_such_chat',
  'no_such_document',
  'no_such_message',
  'no_such_model',
  'not_gguf',
  'options',
  'out_of_memory',
  'prompt',
  'quantization',
  'range',
  'snapshot',
  'stopped',
  'store',
  'store_version',
  'tokenizer',
  'too_much_text',
  'unsupported_model',
  'worker_answer',
  'worker_crash_loop',
  'worker_down',
  'worker_lost',
  'worker_missing',
  'worker_restarting',
  'worker_start',
  'worker_version',
  'write',
] as const;
export type Code = (typeof CODES)[number];

/** The programs write their sentences in English; other languages say the same by its code. */
const SENTENCES: Record<Exclude<Language, 'en'>, Record<Code, string>> = { zh };

/** An error as it is shown: one sentence, and the English original where the sentence stands for it. */
export interface Explained {
  sentence: string;
  detail: string | null;
}

export function explain({ code, message }: ApiError): Explained {
  const spoken = language();
  const known = spoken !== 'en' && isCode(code) ? SENTENCES[spoken][code] : null;
  return known ? { sentence: known, detail: message } : { sentence: message, detail: null };
}

function isCode(code: string): code is Code {
  return (CODES as readonly string[]).includes(code);
}
