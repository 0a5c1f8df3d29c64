import type { Catalogue } from '..';
import { numbersOf } from '../numbers';

const { count } = numbersOf('zh');

export const thread: Catalogue['thread'] = {
  label: '对话内容',
  opening: '正在打开对话',
  toEnd: '跳到末尾',
  you: '你',
  answer: '回答',
  thinking: '正在思考…',
  thoughts: '思考过程',
  copyAnswer: '复制回答',
  ttft: (seconds) => `首个 token ${seconds} 秒`,
  generated: (n) => `${count(n)} 个 token`,
  prefilled: (n) => `读取 ${count(n)}`,
  cameBack: (n) => `书写时取回 ${count(n)} 次`,
  endedAtLimit: '已达到 token 上限',
  stopped: '已停止',
  cutOff: '已中断',
  continue: '继续',
  continueTitle: '写完这个回答',
  regenerate: '重新回答',
  copyQuestion: '复制问题',
  showAll: (characters) => `显示全部 ${characters} 个字符`,
  edit: '编辑',
  editQuestion: '编辑问题',
  editHint: '在新的分支中提问；现有回答会保留。',
  branches: '对话分支',
  ofQuestions: { previous: '上一个问题', next: '下一个问题' },
  ofAnswers: { previous: '上一个回答', next: '下一个回答' },
  prefill: {
    label: '正在读取提示',
    auto: '正在读取',
    exact: '精确读取（逐层）',
    streaming: '流式读取（近似）',
    waiting: '正在等待模型',
    queued: '正在等待另一个回答写完',
    restoring: '正在恢复模型记得的这个对话的内容',
    saving: '正在保存模型记得的这个对话的内容，然后读取',
    tokens: (done, all) => `${count(done)} / ${count(all)} 个 token`,
  },
  lookedAgain: '重新查看了',
  showOnHeatmap: (name) => `${name}：在热力图上显示`,
  showIt: (name) => `${name}：显示原处`,
  andMore: (n) => `，另有 ${count(n)} 处`,
  welcome: {
    modelTitle: '先选一个模型',
    modelText:
      '一切都在这台电脑上运行：你的问题和文件不会离开它。小模型在任何机器上都很快，大模型最好有显卡。',
    title: '向长文档提问',
    steps: [
      {
        lead: '拖入 PDF、文本或 Markdown 文件',
        rest: '，放在窗口任意位置即可。发送之前会显示页数和 token 数。',
      },
      { lead: '提问。', rest: '全文只读一次，之后的问题从那里继续。' },
      {
        lead: '在右侧查看和调节记忆',
        rest: '。热力图显示模型还记得什么，滑块决定它可以记住多少。',
      },
    ],
    choose: '选择文件…',
  },
};
