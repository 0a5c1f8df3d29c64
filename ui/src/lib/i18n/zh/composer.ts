import type { Catalogue } from '..';

export const composer: Catalogue['composer'] = {
  label: '你的问题',
  needsModel: '请先在上方选择一个模型',
  ask: '输入问题，或拖入文档…',
  askDocument: '就这份文档提问…',
  attach: '添加文档',
  attached: '已添加的文档',
  send: '发送',
  sendTitle: '发送 (Enter)',
  stop: '停止',
  stopTitle: '停止 (Esc)',
  contextTitle: '本对话的 token 数，以及模型训练时的上下文长度',
  pastContext: (context) =>
    `已超过训练长度 ${context} 个 token：保留的内容已重新排列，对话可以继续。`,
  tooLong: (context) => `超过了该模型训练时的 ${context} 个 token：回答质量可能下降。`,
  lossy: '压缩是有损的：模型看不到被淘汰的文字。医疗、法律和财务方面的回答请核对。',
};
