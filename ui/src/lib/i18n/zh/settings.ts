import type { Catalogue } from '..';
import { numbersOf } from '../numbers';

const { count } = numbersOf('zh');

export const settings: Catalogue['settings'] = {
  title: '设置',
  openTitle: '设置 (Ctrl+,)',
  theme: '主题',
  themes: { system: '跟随系统', light: '浅色', dark: '深色' },
  language: '语言',
  languageSystem: '跟随系统',
  snapshots: {
    name: '磁盘上的对话记忆（GiB）',
    says: '重新启动后无需再次读取对话；0 表示不保存。',
    use: (bytes, chats) => `现有 ${bytes}，共 ${count(chats)} 个对话。`,
  },
  fontSize: '字号',
  fontSizes: { small: '小', normal: '标准', large: '大', huge: '特大' },
  systemPrompt: {
    name: '系统提示',
    example: '例如：回答要简短，并注明页码。',
    says: '放在每个新对话的第一个问题之前。已有的对话保持它们开始时的提示；留空则由模型决定。',
  },
  store: {
    name: '每个对话的后备存储（GiB 内存）',
    says: '被淘汰的内容在这里等待取回。留空则随空闲内存变化；0 表示不保留，被淘汰的内容即被遗忘。',
    auto: '自动',
  },
  data: {
    name: '数据文件夹',
    open: '打开',
    says: '对话及其文档。如需移到别处：关闭 Cistern，移动此文件夹，然后将 CISTERN_DATA 设为新位置再启动 Cistern。',
  },
  resetDone: '所有设置已恢复默认值。',
  sampling: {
    title: '高级：如何选取 token',
    random: '随机',
    temperature: { name: '温度', says: '0 表示总取最可能的 token' },
    top_p: { name: 'Top-p', says: '1 表示关闭' },
    top_k: { name: 'Top-k', says: '0 表示关闭' },
    min_p: { name: 'Min-p', says: '0 表示关闭' },
    repetition_penalty: { name: '重复惩罚', says: '1 表示关闭' },
    seed: { name: '随机种子', says: '留空则每次更换' },
    max_tokens: { name: '最长回答', says: '以 token 计' },
  },
};
