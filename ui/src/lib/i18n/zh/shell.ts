import type { Catalogue } from '..';

export const shell: Catalogue['shell'] = {
  sidebar: '对话列表',
  sidebarTitle: '对话列表 (Ctrl+B)',
  inspector: '记忆面板',
  inspectorTitle: '记忆 (Ctrl+I)',
  theme: {
    system: '主题：跟随系统',
    light: '主题：浅色',
    dark: '主题：深色',
  },
  dismiss: '关闭通知',
};
